//! `tools/list` with our tools in it. Pure; every other byte of the server's answer stays.

use std::time::Duration;

use serde_json::value::RawValue;

use super::schema::or_ticket;
use crate::mcp::json::{Object, Writer, raw, set};
use crate::mcp::tool_list::edit_tools;
use crate::task::ticket::{CompanionNames, CompanionTool};

const TICKET: &str =
    r#"{"type":"string","description":"The ticket that the call was answered with."}"#;
const ROUND: &str =
    r#"{"type":"integer","minimum":0,"description":"The round that the last answer named."}"#;
const KEY: &str = r#"{"type":"string","description":"Which question, as it was named."}"#;
const ACTION: &str = r#"{"type":"string","enum":["accept","decline","cancel"]}"#;
const CONTENT: &str = r#"{"type":"object","description":"With accept: the answer, in the shape that was asked for."}"#;

const OFFSET: &str = r#"{"type":"integer","minimum":0,"description":"With a large result: reads it from this byte on."}"#;
const LIMIT: &str =
    r#"{"type":"integer","minimum":1,"description":"How many bytes are read; 16384 if left out."}"#;
const GREP: &str = r#"{"type":"string","description":"Gives only the lines that contain this text, whatever its case."}"#;
const BLOCK: &str = r#"{"type":"integer","minimum":0,"description":"Gives only this part of the content, by the number that was named."}"#;
const AS: &str = r#"{"type":"string","enum":["text","json"],"default":"text","description":"json: reads all of the result as JSON, with structuredContent."}"#;

/// The page with output schemas that admit a ticket, for the tools whose calls may become a ticket. `None`: nothing
/// changes.
pub(super) fn admitting_tickets(
    page: &RawValue,
    may_be_ticket: impl Fn(&str) -> bool,
) -> Option<Box<RawValue>> {
    let edited = edit_tools(page.get(), |tool| admitting_ticket(tool, &may_be_ticket))?;
    raw(edited).ok()
}

fn admitting_ticket(tool: &RawValue, may_be_ticket: impl Fn(&str) -> bool) -> Option<String> {
    let read = Object::parse(tool.get()).ok()?;
    let schema = read.get("outputSchema")?;
    if !may_be_ticket(&read.get_str("name")?) {
        return None;
    }
    match or_ticket(schema) {
        Some(schema) => set(tool.get(), "outputSchema", &schema).ok(),
        // Clients accept any structured content of a tool without a schema.
        None => Some(read.render_filtered(|key| key != "outputSchema")),
    }
}

/// The page with the companion tools behind the server's. `None`: the page is no list of tools. A call of a companion
/// tool waits for at most `wait_max`. `lists`: the client's calls can be listed.
pub(super) fn with(
    page: &RawValue,
    names: &CompanionNames,
    (wait_max, lists): (Duration, bool),
) -> Option<Box<RawValue>> {
    let tools = Object::parse(page.get()).ok()?.get("tools")?.get();
    let theirs = tools.strip_prefix('[')?.strip_suffix(']')?;
    let mut all = String::with_capacity(tools.len() + 2048);
    all.push('[');
    all.push_str(theirs);
    let mut is_first = theirs.trim_ascii().is_empty();
    for tool in CompanionTool::ALL {
        if !std::mem::take(&mut is_first) {
            all.push(',');
        }
        all.push_str(&definition(tool, &names.of(tool), (wait_max, lists)));
    }
    all.push(']');
    set(page.get(), "tools", &all).and_then(raw).ok()
}

fn definition(tool: CompanionTool, name: &str, (wait_max, lists): (Duration, bool)) -> String {
    let (description, annotations) = match tool {
        CompanionTool::Status if lists => (
            "How a call with a ticket stands, once there is news. Without a ticket: lists your calls.",
            r#"{"readOnlyHint":true,"openWorldHint":false}"#,
        ),
        CompanionTool::Status => (
            "How a call that was answered with a ticket stands, as soon as there is news.",
            r#"{"readOnlyHint":true,"openWorldHint":false}"#,
        ),
        CompanionTool::Result => (
            "Waits for the result of a call that was answered with a ticket, as the tool gives it.",
            r#"{"readOnlyHint":true,"openWorldHint":false}"#,
        ),
        CompanionTool::Cancel => (
            "Cancels a call that was answered with a ticket.",
            r#"{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}"#,
        ),
        CompanionTool::Answer => (
            "Answers a question of a call that was answered with a ticket.",
            r#"{"readOnlyHint":false,"destructiveHint":false,"openWorldHint":false}"#,
        ),
    };
    let mut out = Writer::with_capacity(640);
    out.str("name", name)
        .str("description", description)
        .raw("inputSchema", &schema(tool, (wait_max, lists)))
        .raw("annotations", annotations);
    out.end()
}

fn schema(tool: CompanionTool, (wait_max, lists): (Duration, bool)) -> String {
    let mut properties = Writer::object();
    properties.raw("ticket", TICKET);
    let required = match tool {
        CompanionTool::Status | CompanionTool::Result => {
            properties
                .raw("round", ROUND)
                .raw("wait_seconds", &wait(wait_max));
            if tool == CompanionTool::Result {
                properties
                    .raw("offset", OFFSET)
                    .raw("limit", LIMIT)
                    .raw("grep", GREP)
                    .raw("block", BLOCK)
                    .raw("as", AS);
            }
            if lists && tool == CompanionTool::Status {
                "[]"
            } else {
                r#"["ticket"]"#
            }
        }
        CompanionTool::Cancel => r#"["ticket"]"#,
        CompanionTool::Answer => {
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

fn wait(wait_max: Duration) -> String {
    let seconds = wait_max.as_secs_f64();
    let mut out = Writer::object();
    out.str("type", "number").raw("minimum", "0");
    out.number("maximum", seconds).number("default", seconds);
    out.str(
        "description",
        "Leave it out: the longest wait takes the fewest calls.",
    );
    out.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(40);

    fn page(text: &str) -> Box<RawValue> {
        raw(text.to_owned()).unwrap()
    }

    fn names() -> CompanionNames {
        CompanionNames::free(&"our_".into(), |_| false).unwrap()
    }

    #[test]
    fn the_servers_bytes_stay() {
        let edited = with(
            &page(r#"{ "ttlMs":0, "tools" : [ {"name":"\u0061","n":1.10} ] ,"x":1}"#),
            &names(),
            (WAIT, false),
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
        let empty = with(&page(r#"{"tools":[ ]}"#), &names(), (WAIT, true)).unwrap();
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
        assert!(with(&page(r#"{"tools":{}}"#), &names(), (WAIT, true)).is_none());
        assert!(with(&page("{}"), &names(), (WAIT, true)).is_none());
    }

    #[test]
    fn schemas_of_tools_that_may_be_tickets_admit_them() {
        let text = r#"{"tools":[ {"name":"a", "outputSchema":{"type":"object","required":["n"]} , "n":1.10},{"name":"b","outputSchema":{"type":"array"},"x":2},{"name":"c","outputSchema":{"type":"object"}},{"name":"d"}] }"#;
        let edited = admitting_tickets(&page(text), |name| name != "c").unwrap();
        assert_eq!(
            edited.get(),
            r#"{"tools":[ {"name":"a", "outputSchema":{"anyOf":[{"required":["n"]},{"required":["ticket","state","message"]}],"properties":{},"type":"object"} , "n":1.10},{"name":"b","x":2},{"name":"c","outputSchema":{"type":"object"}},{"name":"d"}] }"#
        );
        assert!(admitting_tickets(&page(text), |name| name == "d").is_none());
    }
}
