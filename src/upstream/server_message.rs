//! One message of the server, read leniently. Shared by both eras.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::value::RawValue;

use crate::mcp::error::{Failure, code};
use crate::mcp::failure_detail::FailureDetail;
use crate::mcp::flaw::Flaw;
use crate::mcp::json::{Fault, Object, is_object};
use crate::mcp::result;
use crate::mcp::scan::{flaw_of, mend, with_finite};
use crate::upstream::envelope_scan::answer_in;
use crate::upstream::failures::{INVALID, TOO_DEEP};

/// One message of the server, by kind.
#[derive(Debug)]
pub(super) enum ServerMessage {
    /// No message: an event that only has an id to resume after.
    Primed,
    Result {
        id: Box<str>,
        result: Box<RawValue>,
    },
    Error {
        id: Box<str>,
        error: Box<RawValue>,
    },
    Request {
        id: Box<str>,
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    /// An answer whose id can be relied on, and nothing else.
    Unreadable {
        id: Box<str>,
        failure: Failure,
        /// The text is as the server wrote it.
        is_utf8: bool,
    },
}

/// Reads a message leniently: an error of the server that does no harm is ignored.
pub(super) fn read(text: &str) -> Result<ServerMessage, Failure> {
    read_whole(text).or_else(|failure| read_id(text, failure, true))
}

/// Reads a message that came over a line, and may not be UTF-8.
pub(super) fn read_line(line: &[u8]) -> Result<(ServerMessage, Cow<'_, str>), Failure> {
    match std::str::from_utf8(line) {
        Ok(text) => Ok((read(text)?, Cow::Borrowed(text))),
        Err(error) => {
            let text = String::from_utf8_lossy(line);
            let at = error.valid_up_to();
            let message = read_id(&text, INVALID.because(Flaw::Utf8 { at }), false)?;
            Ok((message, text))
        }
    }
}

/// The messages of a batch (2025-03-26). `None`: the text is no array.
pub(super) fn batch(text: &str) -> Option<VecDeque<String>> {
    // Nearly no message is a batch, and this look costs no parser.
    if !text.trim_start().starts_with('[') {
        return None;
    }
    let messages: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let is_batch = messages.iter().all(|message| is_object(message));
    is_batch.then(|| messages.iter().map(|it| it.get().to_owned()).collect())
}

/// The only message of a batch; any other text as it is.
pub(super) fn alone(text: String) -> String {
    match batch(&text) {
        Some(mut messages) if messages.len() == 1 => messages.pop_front().unwrap_or(text),
        Some(_) | None => text,
    }
}

/// Reads the id of an answer that cannot be read, because no other answer will end its request.
fn read_id(text: &str, failure: Failure, is_utf8: bool) -> Result<ServerMessage, Failure> {
    let unreadable = |id: &str, failure| ServerMessage::Unreadable {
        id: id.into(),
        failure,
        is_utf8,
    };
    let Ok(object) = Object::parse(text) else {
        let Some(seen) = answer_in(text.as_bytes()) else {
            return Err(failure);
        };
        let is_alone = text.trim_start().starts_with('{');
        let failure = if is_alone {
            failure
        } else {
            failure.because(Flaw::Before { at: seen.at })
        };
        return Ok(unreadable(&seen.id, failure));
    };
    let is_of_rpc = object.contains("jsonrpc");
    let has_answer = object.contains("result") || object.contains("error");
    let id = object.get("id").map(RawValue::get);
    let lack = match id {
        _ if failure.detail.is_some() => None,
        Some("null") => Some("its id is null"),
        Some(_) if !has_answer => Some("it has neither a result nor an error"),
        Some(_) => None,
        None => Some("it has no id"),
    };
    let failure = match lack {
        Some(lack) => failure.with_detail(FailureDetail::Text(lack)),
        None => failure,
    };
    match id {
        // A broken request or notification is no answer, although it may have an id.
        _ if object.contains("method") => Err(failure),
        Some(id) if has_answer || is_of_rpc => Ok(unreadable(id, failure)),
        None if has_answer && is_of_rpc => Ok(unreadable("null", failure)),
        Some(_) | None => Err(failure),
    }
}

fn read_whole(text: &str) -> Result<ServerMessage, Failure> {
    let text = mend(text).map_err(|fault| match fault {
        Fault::Depth => TOO_DEEP,
        Fault::Utf8 | Fault::ByteOrderMark | Fault::Surrogate | Fault::Syntax => invalid(text),
    })?;
    let object = Object::parse(&text).map_err(|_| invalid(&text))?;
    let id = object.get("id").map(|id| Box::from(id.get()));
    let params = object.get("params").map(ToOwned::to_owned);
    if let Some(method) = object.get_str("method") {
        let method = method.as_ref().into();
        // JSON-RPC 1 marked notifications so, and nobody could tell which request an answer is for.
        return Ok(match id.filter(|id| &**id != "null") {
            Some(id) => ServerMessage::Request { id, method, params },
            None => ServerMessage::Notification { method, params },
        });
    }
    // Some servers write both, and null for the one that there is not.
    let is_there = |value: &&RawValue| value.get() != "null";
    let (result, error) = (object.get("result"), object.get("error"));
    let (result, error) = match (result.filter(is_there), error.filter(is_there)) {
        (None, None) => (result, error),
        said => said,
    };
    match (result, error, id) {
        (Some(result), None, Some(id)) if &*id != "null" => Ok(ServerMessage::Result {
            id,
            result: result.to_owned(),
        }),
        // A server that could not read a request does not know its id. What has no code may be a line of a log.
        (None, Some(error), id) if id.is_some() || result::error_code(error).is_some() => {
            Ok(ServerMessage::Error {
                id: id.unwrap_or_else(|| "null".into()),
                error: error.to_owned(),
            })
        }
        _ => Err(INVALID),
    }
}

fn invalid(text: &str) -> Failure {
    flaw_of(text).map_or(INVALID, |flaw| INVALID.because(flaw))
}

/// Returns `true` if a client may be able to read an answer that raincheck does not read: it is JSON except for NaN
/// and Infinity, which Python reads, or has a result beside an error.
pub(super) fn is_readable_elsewhere(text: &str) -> bool {
    let copy = with_finite(text);
    let object = Object::parse(copy.as_deref().unwrap_or(text));
    object.is_ok_and(|object| object.contains("result") || object.contains("error"))
}

/// Returns `true` if an error is about a notification: a server that does not find the method of a request has read
/// the id of the request.
pub(super) fn is_about_notification(id: &str, error: &RawValue) -> bool {
    id == "null" && result::error_code(error) == Some(code::METHOD_NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind and the id of a message, or the words for what is wrong with it.
    fn kind(text: &str) -> String {
        match read_line(text.as_bytes()).map(|(message, _)| message) {
            Ok(ServerMessage::Primed) => "primed".to_owned(),
            Ok(ServerMessage::Result { id, result }) => format!("result {id} {result}"),
            Ok(ServerMessage::Error { id, error }) => format!("error {id} {error}"),
            Ok(ServerMessage::Request { id, .. }) => format!("request {id}"),
            Ok(ServerMessage::Notification { .. }) => "notification".to_owned(),
            Ok(ServerMessage::Unreadable { id, failure, .. }) => {
                let flaw = failure.detail.map(|detail| detail.to_string());
                format!("unreadable {id} {}", flaw.unwrap_or_default())
            }
            Err(_) => "nothing".to_owned(),
        }
    }

    /// One row for each way in which servers write.
    #[test]
    fn what_servers_write() {
        for (text, read) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "result 7 {}"),
            (r#"{"id":7,"result":{}}"#, "result 7 {}"),
            (r#" {"id":"7","result":{},"x":1} "#, r#"result "7" {}"#),
            (r#"{"id":7,"result":{},"error":null}"#, "result 7 {}"),
            (
                r#"{"id":7,"result":null,"error":{"code":1}}"#,
                r#"error 7 {"code":1}"#,
            ),
            (r#"{"id":7,"result":null}"#, "result 7 null"),
            (r#"{"id":null,"method":"n"}"#, "notification"),
            (r#"{"id":7,"method":"m"}"#, "request 7"),
            (r#"{"id":7,"error":"oops"}"#, r#"error 7 "oops""#),
            (
                r#"{"id":null,"error":{"code":1}}"#,
                r#"error null {"code":1}"#,
            ),
            (r#"{"error":{"code":1}}"#, r#"error null {"code":1}"#),
            (
                r#"{"id":7,"result":{},"error":{"code":1}}"#,
                "unreadable 7 ",
            ),
            (
                r#"{"jsonrpc":"2.0","id":7}"#,
                "unreadable 7 it has neither a result nor an error",
            ),
            (
                r#"{"jsonrpc":"2.0","result":{}}"#,
                "unreadable null it has no id",
            ),
            (
                r#"{"id":7,"result":{"a":NaN}}"#,
                "unreadable 7 NaN and Infinity are not JSON, at byte 22",
            ),
            (
                r#"{"id":7,"result":{"a":1,}}"#,
                "unreadable 7 it is not JSON from '}' at byte 24 on",
            ),
            (
                r#"INFO {"id":7,"result":{}}"#,
                "unreadable 7 other text stands before it on its line, up to byte 5",
            ),
            (
                r#"{"method":"n"}{"id":7,"result":{}}"#,
                "unreadable 7 it is not JSON from '{' at byte 14 on",
            ),
            (r#"{"level":"error","error":"x"}"#, "nothing"),
            (r#"{"level":"info","result":"x"}"#, "nothing"),
            (r#"{"level":"info","id":7}"#, "nothing"),
            ("INFO loaded 3 plugins", "nothing"),
            ("[1,2]", "nothing"),
        ] {
            assert_eq!(kind(text), read, "{text}");
        }
        let latin = [br#"{"id":7,"result":"caf"#, &b"\xe9\"}"[..]].concat();
        let read = read_line(&latin).map(|(message, _)| message);
        assert!(matches!(
            read,
            Ok(ServerMessage::Unreadable { failure, is_utf8: false, .. })
                if failure.detail == Some(FailureDetail::Flaw(Flaw::Utf8 { at: 21 }))
        ));
    }

    #[test]
    fn a_batch_is_an_array_of_messages() {
        let messages = |text| batch(text).map(|it| Vec::from(it).join(" "));
        assert_eq!(
            messages(r#" [{"a":1}, {"b":2}]"#).as_deref(),
            Some(r#"{"a":1} {"b":2}"#)
        );
        assert_eq!(messages("[]").as_deref(), Some(""));
        for other in ["{}", "[1]", "[{}", ""] {
            assert_eq!(messages(other), None, "{other}");
        }
    }
}
