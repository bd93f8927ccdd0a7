//! One message of the server, read leniently. Shared by both eras.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::mcp::error::Failure;
use crate::mcp::json::{Fault, Object};
use crate::mcp::scan::mend;
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
    let text = String::from_utf8_lossy(line);
    let message = match &text {
        Cow::Borrowed(text) => read(text),
        Cow::Owned(text) => read_id(text, INVALID, false),
    };
    Ok((message?, text))
}

/// Reads the id of an answer that cannot be read, because no other answer will end its request.
fn read_id(text: &str, failure: Failure, is_utf8: bool) -> Result<ServerMessage, Failure> {
    let object = Object::parse(text).map_err(|_| failure.clone())?;
    let has_answer = object.contains("result") || object.contains("error");
    let is_answer = has_answer && !object.contains("method");
    let Some(id) = object.get("id").filter(|_| is_answer) else {
        return Err(failure);
    };
    Ok(ServerMessage::Unreadable {
        id: id.get().into(),
        failure,
        is_utf8,
    })
}

fn read_whole(text: &str) -> Result<ServerMessage, Failure> {
    let text = mend(text).map_err(|fault| match fault {
        Fault::Depth => TOO_DEEP,
        Fault::Utf8 | Fault::ByteOrderMark | Fault::Surrogate | Fault::Syntax => INVALID,
    })?;
    let object = Object::parse(&text).map_err(|_| INVALID)?;
    let id = object.get("id").map(|id| Box::from(id.get()));
    let params = object.get("params").map(ToOwned::to_owned);
    if let Some(method) = object.get_str("method") {
        let method = method.as_ref().into();
        return Ok(match id {
            Some(id) => ServerMessage::Request { id, method, params },
            None => ServerMessage::Notification { method, params },
        });
    }
    let id = id.unwrap_or_else(|| "null".into());
    match (object.get("result"), object.get("error")) {
        (Some(result), None) => Ok(ServerMessage::Result {
            id,
            result: result.to_owned(),
        }),
        (None, Some(error)) => Ok(ServerMessage::Error {
            id,
            error: error.to_owned(),
        }),
        _ => Err(INVALID),
    }
}
