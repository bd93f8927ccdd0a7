//! `tools/list` with our tools in it. Pure; every other byte of the server's answer stays.

use serde_json::value::RawValue;

use crate::mcp::json::{Object, Writer, raw, set};
use crate::task::ticket::{Names, Tool};

const TICKET: &str =
    r#"{"type":"string","description":"The ticket that the call was answered with."}"#;
const WAIT: &str = r#"{"type":"number","minimum":0,"maximum":30,"default":30,"description":"How long to wait for news."}"#;
const KEY: &str = r#"{"type":"string","description":"Which question, as task_status names it."}"#;
const ACTION: &str = r#"{"type":"string","enum":["accept","decline","cancel"]}"#;
const CONTENT: &str = r#"{"type":"object","description":"With accept: the answer, in the shape that was asked for."}"#;

/// Whether no further page follows.
pub(super) fn is_last(page: &RawValue) -> bool {
    let cursor = Object::parse(page.get()).map(|page| page.get("nextCursor"));
    cursor.is_ok_and(|cursor| cursor.is_none_or(|cursor| cursor.get() == "null"))
}

/// The page with our tools behind the server's. `None`: it is no list of tools.
pub(super) fn with(page: &RawValue, names: &Names) -> Option<Box<RawValue>> {
    let tools = Object::parse(page.get()).ok()?.get("tools")?.get();
    let theirs = tools.strip_prefix('[')?.strip_suffix(']')?;
    let mut all = String::with_capacity(tools.len() + 2048);
    all.push('[');
    all.push_str(theirs);
    let mut is_first = theirs.trim_ascii().is_empty();
    for tool in Tool::ALL {
        if !std::mem::take(&mut is_first) {
            all.push(',');
        }
        all.push_str(&definition(tool, &names.of(tool)));
    }
    all.push(']');
    set(page.get(), "tools", &all).and_then(raw).ok()
}

fn definition(tool: Tool, name: &str) -> String {
    let (description, annotations) = match tool {
        Tool::Status => (
            "Waits for a call that was answered with a ticket, and says how it stands.",
            r#"{"readOnlyHint":true,"openWorldHint":false}"#,
        ),
        Tool::Result => (
            "The result of a call that was answered with a ticket, as the tool gave it.",
            r#"{"readOnlyHint":true,"openWorldHint":false}"#,
        ),
        Tool::Cancel => (
            "Cancels a call that was answered with a ticket.",
            r#"{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}"#,
        ),
        Tool::Answer => (
            "Answers a question of a call that was answered with a ticket.",
            r#"{"readOnlyHint":false,"destructiveHint":false,"openWorldHint":false}"#,
        ),
    };
    let mut out = Writer::with_capacity(640);
    out.str("name", name)
        .str("description", description)
        .raw("inputSchema", &schema(tool))
        .raw("annotations", annotations);
    out.end()
}

fn schema(tool: Tool) -> String {
    let mut properties = Writer::object();
    properties.raw("ticket", TICKET);
    let required = match tool {
        Tool::Status | Tool::Result => {
            properties.raw("wait_seconds", WAIT);
            r#"["ticket"]"#
        }
        Tool::Cancel => r#"["ticket"]"#,
        Tool::Answer => {
            properties
                .raw("key", KEY)
                .raw("action", ACTION)
                .raw("content", CONTENT);
            r#"["ticket","key","action"]"#
        }
    };
    let mut out = Writer::with_capacity(512);
    out.str("type", "object")
        .raw("properties", &properties.end())
        .raw("required", required)
        .raw("additionalProperties", "false");
    out.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Box<RawValue> {
        raw(text.to_owned()).unwrap()
    }

    fn names() -> Names {
        Names::free(&"our_".into(), |_| false).unwrap()
    }

    #[test]
    fn the_servers_bytes_stay() {
        let edited = with(
            &page(r#"{ "ttlMs":0, "tools" : [ {"name":"\u0061","n":1.10} ] ,"x":1}"#),
            &names(),
        );
        let edited = edited.unwrap();
        let (before, after) = edited
            .get()
            .split_once(r#",{"name":"task_status","#)
            .unwrap();
        assert_eq!(
            before,
            r#"{ "ttlMs":0, "tools" : [ {"name":"\u0061","n":1.10} "#
        );
        assert!(after.ends_with(r#"}] ,"x":1}"#), "{after}");
        let empty = with(&page(r#"{"tools":[ ]}"#), &names()).unwrap();
        let empty: serde_json::Value = serde_json::from_str(empty.get()).unwrap();
        let listed: Vec<_> = empty["tools"].as_array().unwrap().iter().collect();
        assert_eq!(listed.len(), 4);
        for tool in listed {
            let properties = tool["inputSchema"]["properties"].as_object().unwrap();
            for required in tool["inputSchema"]["required"].as_array().unwrap() {
                assert!(
                    properties.contains_key(required.as_str().unwrap()),
                    "{tool}"
                );
            }
        }
        assert!(with(&page(r#"{"tools":{}}"#), &names()).is_none());
        assert!(with(&page("{}"), &names()).is_none());
    }

    #[test]
    fn only_the_last_page_has_no_cursor() {
        assert!(is_last(&page(r#"{"tools":[]}"#)));
        assert!(is_last(&page(r#"{"tools":[],"nextCursor":null}"#)));
        assert!(!is_last(&page(r#"{"tools":[],"nextCursor":"x"}"#)));
    }
}
