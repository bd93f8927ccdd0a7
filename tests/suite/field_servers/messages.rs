//! The members of an answer, and how servers write its id.

use super::{Carried, Done, Refused, Row, all, call, check, text};
use crate::field_servers::server::{PLAIN, WAYS, Way, message};

#[tokio::test]
async fn answers_are_read_as_servers_write_them() {
    check(messages()).await;
}

#[expect(clippy::too_many_lines, reason = "it is one table")]
fn messages() -> Vec<Row> {
    vec![
        ("as it should be", &WAYS, PLAIN, Done),
        (
            "the id as a string",
            &WAYS,
            all(|id, result| message(&format!("\"{}\"", id.trim_matches('"')), result)),
            Done,
        ),
        (
            "the id with a fraction",
            &[Way::Modern, Way::Sse, Way::Program],
            all(|id, result| {
                let dot = if id.starts_with('"') { "" } else { ".0" };
                message(&format!("{id}{dot}"), result)
            }),
            Done,
        ),
        (
            "a null error beside the result",
            &WAYS,
            all(|id, result| {
                text(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{result},"error":null}}"#
                ))
            }),
            Done,
        ),
        (
            "members that nobody knows",
            &WAYS,
            all(|id, result| {
                text(format!(
                    r#"{{"_debug":{{"t":1}},"jsonrpc":"2.0","id":{id},"result":{result},"took":3}}"#
                ))
            }),
            Done,
        ),
        (
            "no jsonrpc",
            &WAYS,
            all(|id, result| text(format!(r#"{{"id":{id},"result":{result}}}"#))),
            Done,
        ),
        (
            "an array with one answer",
            &WAYS,
            call(|id, result| [b"[", &*message(id, result), b"]"].concat()),
            Done,
        ),
        (
            "half a surrogate pair",
            &WAYS,
            call(|id, _| message(id, r#"{"content":[{"type":"text","text":"done \ud83d"}]}"#)),
            Done,
        ),
        (
            "NaN",
            &WAYS,
            call(|id, _| message(id, r#"{"content":[],"structuredContent":{"done":NaN}}"#)),
            Carried("NaN and Infinity are not JSON, at byte"),
        ),
        (
            "minus infinity",
            &WAYS,
            call(|id, _| {
                message(
                    id,
                    r#"{"content":[],"structuredContent":{"done":-Infinity}}"#,
                )
            }),
            Carried("NaN and Infinity are not JSON, at byte"),
        ),
        (
            "a trailing comma",
            &WAYS,
            call(|id, _| message(id, r#"{"content":[],}"#)),
            Refused("it is not JSON from '}' at byte"),
        ),
        (
            "a control character",
            &WAYS,
            call(|id, _| message(id, "{\"content\":[{\"type\":\"text\",\"text\":\"\t\"}]}")),
            Refused("it is not JSON from 0x09 at byte"),
        ),
        (
            "the quotes of Python",
            &WAYS,
            call(|id, _| text(format!("{{'jsonrpc': '2.0', 'id': {id}, 'result': {{}}}}"))),
            Refused("it is not JSON from ''' at byte 1 on"),
        ),
        (
            "an answer that is cut",
            &WAYS,
            call(|id, _| {
                text(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":["#
                ))
            }),
            Refused("its JSON ends too early"),
        ),
        (
            "an error that is a string",
            &WAYS,
            call(|id, _| {
                text(format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":"went wrong"}}"#
                ))
            }),
            Refused(""),
        ),
        (
            "an error for no request",
            &WAYS,
            call(|_, _| {
                text(
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
                )
            }),
            Refused("Parse error"),
        ),
        (
            "neither a result nor an error",
            &WAYS,
            call(|id, _| text(format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#))),
            Refused("not a valid MCP message"),
        ),
    ]
}
