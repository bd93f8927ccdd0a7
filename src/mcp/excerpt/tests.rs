//! Excerpts of every kind of result.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const URI: &str = "raincheck://task/3ad6b4fd-737e-47b0-aa3e-9980ad6444a1/result";
const TICKET: &str = "3ad6b4fd-737e-47b0-aa3e-9980ad6444a1";

fn by_links() -> Rest<'static> {
    Rest {
        uri: URI,
        tool: None,
        knows_links: true,
        keeps_structured: true,
    }
}

fn by_tool() -> Rest<'static> {
    Rest {
        tool: Some(("raincheck_task_result", TICKET)),
        keeps_structured: false,
        ..by_links()
    }
}

fn of(result: &Value, rest: &Rest<'_>) -> Option<Value> {
    let text = excerpt(&result.to_string(), rest)?;
    assert!(text.len() < 4096, "{text}");
    Some(serde_json::from_str(&text).unwrap())
}

fn text(excerpt: &Value) -> &str {
    excerpt["content"][0]["text"].as_str().unwrap()
}

proptest! {
    #[test]
    fn any_text_is_cut_between_characters_and_says_what_is_missing(
        piece in "[a-zäöü€😀\n\"\\\\\u{1}]{1,40}", times in 300_usize..2000,
    ) {
        let whole = piece.repeat(times);
        let result = json!({"content": [{"type": "text", "text": whole}], "isError": true, "_meta": {"a": 1}});
        for rest in [by_links(), by_tool()] {
            let Some(excerpt) = of(&result, &rest) else {
                prop_assert!(whole.len() < 4096);
                continue;
            };
            prop_assert_eq!(&excerpt["isError"], true);
            prop_assert_eq!(&excerpt["_meta"]["a"], 1);
            let shown = text(&excerpt);
            let (head, behind) = shown.split_once("[raincheck: ").unwrap();
            let (line, tail) = behind.split_once("]\n").unwrap();
            let left: usize = line.split(' ').next().unwrap().parse().unwrap();
            prop_assert!(whole.ends_with(tail));
            let head = if whole.starts_with(head) { head } else { head.strip_suffix('\n').unwrap() };
            prop_assert!(whole.starts_with(head));
            prop_assert_eq!(head.len() + left + tail.len(), whole.len());
            let offset = format!("offset{}{}", if rest.tool.is_some() { " " } else { "=" }, head.len());
            prop_assert!(line.contains(&offset), "{}", line);
        }
    }

    #[test]
    fn what_can_be_read_is_all_of_the_text(texts in prop::collection::vec(".{0,40}", 1..5)) {
        let blocks: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        let result = json!({"content": blocks}).to_string();
        let (read, mime) = readable(&result);
        let whole = texts.join("\n");
        if whole.is_empty() {
            prop_assert_eq!((&*read, mime), (&*result, "application/json"));
        } else {
            prop_assert_eq!((&*read, mime), (&*whole, "text/plain"));
        }
    }
}

#[test]
fn an_excerpt_says_that_it_is_one() {
    let long = json!([{"type": "text", "text": "x".repeat(9000)}]);
    for meta in [
        json!({}),
        json!({"a": 1}),
        json!({"io.raincheck/excerpt": "file:///a"}),
        json!(null),
    ] {
        let result = json!({"content": long, "_meta": meta}).to_string();
        for rest in [by_links(), by_tool()] {
            let excerpt = excerpt(&result, &rest).unwrap();
            assert_eq!(rest_of(&excerpt).as_deref(), Some(URI), "{excerpt}");
        }
    }
    let link = json!({"type": "resource_link", "uri": URI, "name": "result"});
    for whole in [
        json!({"content": [link]}),
        json!({"content": [{"type": "text", "text": "io.raincheck/excerpt"}], "_meta": {"a": 1}}),
        json!({"content": [], "io.raincheck/excerpt": URI}),
    ] {
        assert_eq!(rest_of(&whole.to_string()), None, "{whole}");
    }
}

#[test]
fn whole_lines_are_preferred() {
    let whole = "a line of text\n".repeat(1000);
    let result = json!({"content": [{"type": "text", "text": whole}]});
    let excerpt = of(&result, &by_links()).unwrap();
    let lines = text(&excerpt).lines();
    let odd = lines.filter(|line| *line != "a line of text");
    assert_eq!(odd.count(), 1);
    assert_eq!(
        excerpt["content"][1],
        json!({"type": "resource_link", "uri": URI, "name": "result", "mimeType": "text/plain", "size": 15_000})
    );
}

#[test]
fn what_is_not_text_is_a_link() {
    let image = json!({"type": "image", "mimeType": "image/png", "data": "A".repeat(8000)});
    let small = json!({"type": "resource_link", "uri": "file:///x", "name": "x"});
    let embedded = json!({"type": "resource", "resource": {
        "uri": "file:///y", "mimeType": "application/pdf", "blob": "A".repeat(4000),
    }});
    let content = json!([image, {"type": "text", "text": "here"}, small, embedded, image]);
    let result = json!({"content": content});
    let excerpt = of(&result, &by_links()).unwrap();
    let content = excerpt["content"].as_array().unwrap();
    assert!(text(&excerpt).starts_with("here\n[raincheck: 1 more parts are left out"));
    assert_eq!(content[1]["uri"], URI);
    assert_eq!(content[2]["uri"], format!("{URI}?block=0"));
    assert_eq!(content[2]["mimeType"], "image/png");
    assert_eq!(content[2]["size"], 6000);
    assert_eq!(content[3], small);
    assert_eq!(content[4]["mimeType"], "application/pdf");
    let named = of(&result, &by_tool()).unwrap();
    assert!(text(&named).contains("image/png of 6000 bytes; call raincheck_task_result"));
    assert!(text(&named).contains("and block 3]"));
    let last = text(&named).lines().last().unwrap();
    assert_eq!(
        last,
        format!(
            "[raincheck: 1 more parts are left out; the first is block 4: call raincheck_task_result with ticket {TICKET} \
             and block 4]"
        )
    );
    let result = result.to_string();
    let first = block(&result, 0).unwrap();
    assert_eq!(serde_json::from_str::<Value>(first.get()).unwrap(), image);
    assert!(block(&result, 5).is_none());
}

#[test]
fn structured_content_stays_where_a_client_may_check_it() {
    let structured = json!({"rows": vec!["row"; 1000]});
    let result = json!({"content": [{"type": "text", "text": structured.to_string()}], "structuredContent": structured});
    let kept = excerpt(&result.to_string(), &by_links()).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["structuredContent"], structured);
    assert!(text(&kept).len() < 3000);
    let dropped = of(&result, &by_tool()).unwrap();
    assert!(dropped["structuredContent"].is_null());
    let bytes = structured.to_string().len();
    let said = format!(
        "[raincheck: structuredContent of {bytes} bytes is left out; for all of the result, call raincheck_task_result \
         with ticket {TICKET} and as \"json\"]\n"
    );
    assert!(text(&dropped).ends_with(&said), "{dropped}");
    let done = json!({"content": [{"type": "text", "text": "Done, 5000 rows"}], "structuredContent": structured});
    let shown = of(&done, &by_tool()).unwrap();
    assert_eq!(text(&shown), format!("Done, 5000 rows\n{said}"));
    let small = json!({"content": [{"type": "text", "text": "x".repeat(9000)}], "structuredContent": {"n": 1}});
    assert_eq!(of(&small, &by_tool()).unwrap()["structuredContent"]["n"], 1);
    // With nothing else to show, the result itself is what can be read.
    let only = json!({"content": [], "structuredContent": structured});
    assert!(excerpt(&only.to_string(), &by_links()).is_none());
    let shown = of(&only, &by_tool()).unwrap();
    assert!(text(&shown).starts_with(r#"{"content":[],"#));
    assert_eq!(readable(&only.to_string()).0, only.to_string());
}

#[test]
fn a_text_that_cannot_be_read_is_shown_as_json() {
    let filler = format!(r#"{{"type":"text","text":"{}"}}"#, "x".repeat(70_000));
    for odd in [
        r#"{"type":"text","text":"\ud83d"}"#,
        r#"{"type":"text","text":null}"#,
        r#"{"type":"text","text":{}}"#,
        r#"{"type":"text","text":"a","text":"b"}"#,
        "7",
    ] {
        let result = format!(r#"{{"content":[{filler},{odd}]}}"#);
        assert_eq!(
            readable(&result),
            (Cow::Borrowed(&*result), "application/json")
        );
        for rest in [by_links(), by_tool()] {
            let excerpt = excerpt(&result, &rest).unwrap();
            assert!(excerpt.len() < 4096, "{excerpt}");
            let excerpt: Value = serde_json::from_str(&excerpt).unwrap();
            let shown = text(&excerpt);
            let total = format!("of {} bytes are left out", result.len());
            assert!(
                shown.starts_with(&result[..1000]) && shown.contains(&total),
                "{shown}"
            );
            if rest.tool.is_none() {
                assert_eq!(excerpt["content"][1]["mimeType"], "application/json");
            }
        }
    }
}

#[test]
fn what_would_not_be_shorter_stays() {
    for result in [
        json!({"content": [{"type": "text", "text": "short"}]}),
        json!({"content": []}),
        json!({"content": "x".repeat(9000)}),
        json!({"content": {"a": "x".repeat(9000)}}),
        json!(["x".repeat(9000)]),
    ] {
        assert!(
            excerpt(&result.to_string(), &by_links()).is_none(),
            "{result}"
        );
    }
}
