//! A part of a large result, as a client reads it: as a resource, or as the result of a tool. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::id::TaskId;
use super::large_results::{Part, ResultUri, limit};
use crate::mcp::excerpt::{block, readable};
use crate::mcp::json::{Object, Writer, quote};
use crate::mcp::slice::{Slice, grep, slice};
use crate::mcp::version::Era;

/// Where the numbers of a range are, for programs.
const RANGE: &str = "io.raincheck/range";

/// A range as a program reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadRange {
    pub text: String,
    /// Where the next range begins. `None`: this one is the last.
    pub next: Option<u64>,
    /// The length of the whole text, in bytes.
    pub total: u64,
}

const BLOB_MIME: &str = "application/octet-stream";

/// The result of `resources/read`. `None`: the result has no such part.
pub fn as_resource(uri: &str, named: &ResultUri, result: &str, era: Era) -> Option<String> {
    let mut contents = Vec::with_capacity(2);
    let mut meta = None;
    match part(result, named.part)? {
        Read::Text(text, mime) => {
            let range = slice(&text, named.offset, named.limit());
            contents.push(content(uri, &mime, "text", &quote(range.text)));
            if let Some(next) = range.next {
                let next = ResultUri {
                    offset: next as u64,
                    ..*named
                };
                let next = next.to_string();
                let note = format!("[raincheck: {}. Go on with {next}]", said(&range, &text));
                contents.push(content(&next, "text/plain", "text", &quote(&note)));
            }
            meta = Some(numbers(&range, &text));
        }
        Read::Blob(data, mime) => contents.push(content(uri, &mime, "blob", data)),
    }
    let mut out = Writer::with_capacity(1024);
    if era == Era::Modern {
        out.str("resultType", "complete")
            .number("ttlMs", 0)
            .str("cacheScope", "private");
    }
    out.raw("contents", &format!("[{}]", contents.join(",")));
    if let Some(meta) = meta {
        out.raw("_meta", &meta);
    }
    Some(out.end())
}

/// The range in the result of `resources/read`. `None`: it is not the text that begins at `offset`, or the next range does
/// not follow it.
pub fn read_range(result: &str, offset: u64) -> Option<ReadRange> {
    let result = Object::parse(result).ok()?;
    let contents: Vec<&RawValue> = serde_json::from_str(result.get("contents")?.get()).ok()?;
    let first = Object::parse(contents.first()?.get()).ok()?;
    let text = first.get_str("text")?.into_owned();
    let numbers = result.get_object("_meta")?.get_object(RANGE)?;
    let number = |key| numbers.get(key)?.get().parse::<u64>().ok();
    let (total, next) = (number("total")?, number("nextOffset"));
    let end = offset.checked_add(text.len() as u64)?;
    // Without an end before the total, the last range was read.
    let follows = end == next.unwrap_or(total) && next.is_none_or(|next| next < total);
    let joins = number("offset")? == offset && !text.is_empty() && follows;
    joins.then_some(ReadRange { text, next, total })
}

fn content(uri: &str, mime: &str, key: &str, json: &str) -> String {
    let mut out = Writer::with_capacity(json.len() + 192);
    out.str("uri", uri).str("mimeType", mime).raw(key, json);
    out.end()
}

/// The part of a result that a model requests.
#[derive(Debug)]
pub struct Wanted<'w> {
    pub part: Part,
    pub offset: u64,
    /// `None`: what raincheck gives at once.
    pub limit: Option<u64>,
    /// Only the lines that contain this.
    pub grep: Option<Cow<'w, str>>,
}

impl Wanted<'_> {
    /// Returns `true` if this is all of the text. Some models name every argument, and mean the result as the tool
    /// gave it.
    pub fn is_all(&self, result: &str) -> bool {
        let starts = self.part == Part::Text && self.grep.is_none() && self.offset == 0;
        let fits = |limit| limit >= readable(result).0.len() as u64;
        starts && self.limit.is_none_or(fits)
    }
}

/// The result of a tool that gives a part of a result. `tool`: its name. `None`: the result has no such part.
pub fn as_tool_result(
    wanted: &Wanted<'_>,
    result: &str,
    (task, tool): (TaskId, &str),
    era: Era,
) -> Option<String> {
    let limit = limit(wanted.limit);
    let again = |next: usize| {
        let part = match wanted.part {
            Part::Text => String::new(),
            Part::Json => ", as \"json\"".to_owned(),
            Part::Block(place) => format!(", block {place}"),
        };
        format!("Call {tool} with ticket {task}{part} and offset {next} for more")
    };
    let as_it_is = match wanted.part {
        Part::Block(place) => Some(block(result, place)?),
        Part::Text | Part::Json => None,
    };
    let from_start = wanted.offset == 0 && wanted.grep.is_none();
    let blocks = match (part(result, wanted.part)?, as_it_is) {
        // The bytes of an image are of no use in ranges.
        (Read::Blob(..), Some(block)) => block.get().to_owned(),
        (Read::Blob(data, _), None) => text_block(data),
        (Read::Text(text, _), block) => match block {
            Some(block) if from_start && block.get().len() <= limit => block.get().to_owned(),
            Some(_) | None => {
                let (shown, note) = shown(wanted, &text, limit, again);
                let note = format!("[raincheck: {note}]");
                format!("{},{}", text_block(&shown), text_block(&note))
            }
        },
    };
    let mut out = Writer::with_capacity(blocks.len() + 96);
    if era == Era::Modern {
        out.str("resultType", "complete");
    }
    out.raw("content", &format!("[{blocks}]"));
    // What is read of a failed call is no success.
    if let Some(is_error) = Object::parse(result).ok()?.get("isError") {
        out.raw("isError", is_error.get());
    }
    Some(out.end())
}

/// Returns the part of a text that a model gets, and the sentence about it.
fn shown<'t>(
    wanted: &Wanted<'_>,
    text: &'t str,
    limit: usize,
    again: impl Fn(usize) -> String,
) -> (Cow<'t, str>, String) {
    if let Some(word) = &wanted.grep {
        let found = grep(text, word, wanted.offset, limit);
        let more = found.next.map_or_else(
            || "There are no more".to_owned(),
            |next| format!("{}, with the same grep", again(next)),
        );
        let (number, bytes) = (found.number, text.len());
        let word = quote(word);
        let note = format!(
            "{number} lines contain {word}, each behind its offset of {bytes} bytes in all. {more}."
        );
        return (Cow::Owned(found.lines), note);
    }
    let range = slice(text, wanted.offset, limit);
    let more = range
        .next
        .map_or_else(|| "This is the end".to_owned(), again);
    let note = format!("{}. {more}.", said(&range, text));
    (Cow::Borrowed(range.text), note)
}

fn text_block(text: &str) -> String {
    let mut out = Writer::with_capacity(text.len() + 32);
    out.str("type", "text").str("text", text);
    out.end()
}

/// The readable form of a part of a result.
enum Read<'r> {
    Text(Cow<'r, str>, Cow<'r, str>),
    /// As JSON, in base64.
    Blob(&'r str, Cow<'r, str>),
}

fn part(result: &str, part: Part) -> Option<Read<'_>> {
    Some(match part {
        Part::Text => {
            let (text, mime) = readable(result);
            Read::Text(text, mime.into())
        }
        Part::Json => Read::Text(result.into(), "application/json".into()),
        Part::Block(place) => of_block(block(result, place)?),
    })
}

fn of_block(block: &RawValue) -> Read<'_> {
    let object = Object::parse(block.get()).unwrap_or_default();
    let inner = object.get_object("resource").unwrap_or_default();
    let mime = object.get_str("mimeType");
    let mime = mime.or_else(|| inner.get_str("mimeType"));
    let data = object.get("data").or_else(|| inner.get("blob"));
    if let Some(data) = data {
        return Read::Blob(data.get(), mime.unwrap_or(Cow::Borrowed(BLOB_MIME)));
    }
    let text = object.get_str("text").or_else(|| inner.get_str("text"));
    match text {
        Some(text) => Read::Text(text, mime.unwrap_or(Cow::Borrowed("text/plain"))),
        None => Read::Text(block.get().into(), "application/json".into()),
    }
}

fn said(range: &Slice<'_>, text: &str) -> String {
    let end = range.offset + range.text.len();
    format!("Bytes {} to {end} of {}", range.offset, text.len())
}

fn numbers(range: &Slice<'_>, text: &str) -> String {
    let mut numbers = Writer::object();
    numbers
        .number("offset", range.offset)
        .number("bytes", range.text.len())
        .number("total", text.len());
    if let Some(next) = range.next {
        numbers.number("nextOffset", next);
    }
    let mut meta = Writer::object();
    meta.raw(RANGE, &numbers.end());
    meta.end()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "3ad6b4fd-737e-47b0-aa3e-9980ad6444a1";

    fn read(query: &str, result: &Value, era: Era) -> Option<Value> {
        let uri = format!("raincheck://task/{ID}/result{query}");
        let named = ResultUri::parse(&uri).unwrap();
        let read = as_resource(&uri, &named, &result.to_string(), era)?;
        let read: Value = serde_json::from_str(&read).unwrap();
        assert_eq!(read["contents"][0]["uri"], uri);
        Some(read)
    }

    fn of_text(text: &str) -> Value {
        json!({"content": [{"type": "text", "text": text}]})
    }

    #[test]
    fn a_range_says_where_it_goes_on() {
        let result = of_text("abcdefgh");
        let first = read("?limit=3", &result, Era::Legacy).unwrap();
        assert_eq!(first["contents"][0]["text"], "abc");
        let next = format!("raincheck://task/{ID}/result?offset=3&limit=3");
        assert_eq!(first["contents"][1]["uri"], next);
        let note = format!("[raincheck: Bytes 0 to 3 of 8. Go on with {next}]");
        assert_eq!(first["contents"][1]["text"], note);
        assert_eq!(
            first["_meta"],
            json!({"io.raincheck/range": {"offset": 0, "bytes": 3, "total": 8, "nextOffset": 3}})
        );
        assert!(first.get("resultType").is_none());
        let last = read("?offset=6&limit=3", &result, Era::Modern).unwrap();
        assert_eq!(
            last["contents"],
            json!([{"uri": last["contents"][0]["uri"], "mimeType": "text/plain", "text": "gh"}])
        );
        assert_eq!(
            (&last["resultType"], &last["cacheScope"]),
            (&json!("complete"), &json!("private"))
        );
        assert!(
            last["_meta"]["io.raincheck/range"]
                .get("nextOffset")
                .is_none()
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "aä€😀".repeat(9);
        for limit in [1, 2, 7, 100] {
            let (mut whole, mut next) = (String::new(), Some(0));
            while let Some(offset) = next {
                let query = format!("?offset={offset}&limit={limit}");
                let written = read(&query, &of_text(&text), Era::Modern).unwrap();
                let range = read_range(&written.to_string(), offset).unwrap();
                assert_eq!(range.total, text.len() as u64);
                whole += &range.text;
                next = range.next;
            }
            assert_eq!(whole, text);
        }
    }

    #[test]
    fn ranges_that_do_not_join_are_refused() {
        let of = |text: &str, numbers: Value| {
            let read = json!({"contents": [{"text": text}], "_meta": {RANGE: numbers}});
            read_range(&read.to_string(), 3).is_some()
        };
        assert!(of("de", json!({"offset": 3, "total": 9, "nextOffset": 5})));
        assert!(of("de", json!({"offset": 3, "total": 5})));
        for (text, numbers) in [
            ("de", json!({"offset": 3, "total": 9, "nextOffset": 6})),
            ("de", json!({"offset": 3, "total": 9, "nextOffset": 4})),
            ("de", json!({"offset": 3, "total": 9, "nextOffset": 3})),
            ("de", json!({"offset": 2, "total": 9, "nextOffset": 5})),
            ("", json!({"offset": 3, "total": 9, "nextOffset": 3})),
            ("", json!({"offset": 3, "total": 3})),
            ("de", json!({"offset": 3, "total": 9})),
            ("de", json!({"offset": 3, "total": 4, "nextOffset": 5})),
            ("de", json!({"total": 5})),
        ] {
            assert!(!of(text, numbers.clone()), "{text:?} {numbers}");
        }
    }

    #[test]
    fn every_part_can_be_read() {
        let result = json!({"content": [
            {"type": "text", "text": "here"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "x:y", "text": "inside"}},
            {"type": "new", "n": 1},
        ]});
        let of =
            |query: &str| read(query, &result, Era::Modern).map(|read| read["contents"][0].clone());
        let image = of("?block=1").unwrap();
        assert_eq!(
            (&image["mimeType"], &image["blob"]),
            (&json!("image/png"), &json!("AAAA"))
        );
        assert_eq!(of("?block=2").unwrap()["text"], "inside");
        assert_eq!(of("?block=3").unwrap()["text"], r#"{"n":1,"type":"new"}"#);
        assert_eq!(of("?as=json").unwrap()["text"], result.to_string());
        assert_eq!(of("").unwrap()["text"], "here");
        assert_eq!(of("?block=4"), None);
    }

    #[test]
    fn a_model_reads_ranges_lines_and_parts() {
        let result = of_text("one\ntwo\nthree");
        let of = |wanted: &Wanted<'_>| {
            let task = TaskId::parse(ID).unwrap();
            let text = as_tool_result(
                wanted,
                &result.to_string(),
                (task, "task_result"),
                Era::Legacy,
            )?;
            let read: Value = serde_json::from_str(&text).unwrap();
            Some([0, 1].map(|at| {
                read["content"][at]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            }))
        };
        let wanted = |offset, limit| Wanted {
            part: Part::Text,
            offset,
            limit: Some(limit),
            grep: None,
        };
        let [text, note] = of(&wanted(4, 4)).unwrap();
        assert_eq!(text, "two\n");
        assert_eq!(
            note,
            format!(
                "[raincheck: Bytes 4 to 8 of 13. Call task_result with ticket {ID} and offset 8 for more.]"
            )
        );
        let [text, note] = of(&wanted(8, 40)).unwrap();
        assert_eq!(
            (&*text, &*note),
            (
                "three",
                "[raincheck: Bytes 8 to 13 of 13. This is the end.]"
            )
        );
        let [text, note] = of(&Wanted {
            grep: Some("T".into()),
            ..wanted(0, 4)
        })
        .unwrap();
        assert_eq!(text, "4: two\n");
        assert!(
            note.contains("1 lines contain \"T\"")
                && note.contains("offset 8 for more, with the same grep"),
            "{note}"
        );
        let block = |place, limit| {
            of(&Wanted {
                part: Part::Block(place),
                ..wanted(0, limit)
            })
        };
        assert_eq!(block(0, 100).unwrap(), ["one\ntwo\nthree", ""]);
        let [text, note] = block(0, 4).unwrap();
        assert_eq!(text, "one\n");
        assert!(
            note.contains(&format!("with ticket {ID}, block 0 and offset 4 for more")),
            "{note}"
        );
        assert!(block(1, 4).is_none());
    }

    #[test]
    fn what_is_read_of_a_failed_call_is_an_error() {
        let result = json!({
            "content": [
                {"type": "text", "text": "no"},
                {"type": "image", "mimeType": "image/png", "data": "A".repeat(400)},
                {"type": "resource", "resource": {"uri": "x:y", "text": "i".repeat(400)}},
            ],
            "structuredContent": {"n": 1},
            "isError": true,
        });
        let of = |part| {
            let wanted = Wanted {
                part,
                offset: 0,
                limit: Some(300),
                grep: None,
            };
            let task = TaskId::parse(ID).unwrap();
            let tool = (task, "task_result");
            let read = as_tool_result(&wanted, &result.to_string(), tool, Era::Modern).unwrap();
            let read: Value = serde_json::from_str(&read).unwrap();
            assert_eq!(read["isError"], true);
            read["content"].clone()
        };
        assert_eq!(of(Part::Text)[0]["text"], "no");
        assert_eq!(of(Part::Block(1)), json!([result["content"][1]]));
        assert_eq!(of(Part::Block(2))[0]["text"], "i".repeat(300));
        assert_eq!(of(Part::Json)[0]["text"], result.to_string()[..300]);
        let note = of(Part::Json)[1]["text"].to_string();
        assert!(note.contains(r#", as \"json\" and offset 300"#), "{note}");
    }

    #[test]
    fn a_model_that_names_every_argument_means_all_of_it() {
        let result = of_text("abcdefgh").to_string();
        let is_all = |part, offset, limit, grep: Option<&'static str>| {
            let wanted = Wanted {
                part,
                offset,
                limit,
                grep: grep.map(Cow::Borrowed),
            };
            wanted.is_all(&result)
        };
        assert!(is_all(Part::Text, 0, None, None));
        assert!(is_all(Part::Text, 0, Some(8), None));
        assert!(!is_all(Part::Text, 0, Some(7), None));
        assert!(!is_all(Part::Text, 1, None, None));
        assert!(!is_all(Part::Text, 0, None, Some("a")));
        assert!(!is_all(Part::Json, 0, None, None));
        assert!(!is_all(Part::Block(0), 0, None, None));
    }
}
