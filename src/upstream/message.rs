//! What a message of the server is about: which request of ours it answers, names or logs for; and how a
//! question in it is answered.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::origin::Origin;
use super::port::{Answer, Event, Outgoing};
use super::request_id::RequestId;
use crate::mcp::envelope;
use crate::mcp::json::Object;
use crate::mcp::meta::is_at_least;

/// Whether an error is the answer to that request. A server that could not read the request cannot
/// know its id, and says null or a word of its own.
pub(super) fn is_answer(id: &str, own: &RequestId) -> bool {
    own.is(id) || id == "null" || id.starts_with('"')
}

/// Whether a progress notification speaks of that request.
pub(super) fn is_token(params: &RawValue, id: &RequestId) -> bool {
    let token = Object::parse(params.get())
        .ok()
        .and_then(|params| params.get("progressToken"));
    token.is_some_and(|token| id.is(token.get()))
}

/// A log message, if the client asked for its level.
pub(super) fn log(params: Option<Box<RawValue>>, outgoing: &Outgoing) -> Option<Event> {
    log_at(outgoing.log_level.as_deref(), params?)
}

/// A log message at or above a level; nothing where none was asked for.
pub(super) fn log_at(asked: Option<&str>, params: Box<RawValue>) -> Option<Event> {
    let asked = asked?;
    let level = Object::parse(params.get())
        .ok()
        .and_then(|params| params.get_str("level").map(Cow::into_owned))?;
    is_at_least(&level, asked).then_some(Event::Log(params))
}

/// What any notification tells of the server itself.
pub(super) fn note(origin: &Origin, method: &str) {
    if method == "notifications/tools/list_changed" {
        origin.tools.clear();
    }
}

/// The requests in whose course a server may ask (2026-07-28 says so, and nobody does otherwise),
/// and the one for the result of a server's own task (2025-11-25, Tasks).
pub(super) fn may_ask(method: &str) -> bool {
    matches!(
        method,
        "tools/call" | "prompts/get" | "resources/read" | "tasks/result"
    )
}

pub(super) fn response(id: &str, answer: &Answer) -> String {
    match answer {
        Answer::Result(result) => envelope::result(id, result),
        Answer::Refused(error) => envelope::error(id, error),
    }
}
