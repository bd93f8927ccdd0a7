//! The meaning of a server's message for one request: its answer, its progress, its log, a question. Also the
//! messages that raincheck sends about a request.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::mcp::envelope;
use crate::mcp::error::{RpcError, code};
use crate::mcp::input::InputKind;
use crate::mcp::json::{Object, Writer};
use crate::mcp::meta::is_at_least;
use crate::upstream::http::origin::Origin;
use crate::upstream::port::{Answer, Event, Question, UpstreamError, UpstreamRequest};
use crate::upstream::request_id::RequestId;
use crate::upstream::server_message::ServerMessage;

/// The meaning of a message on the stream of one request for that request.
pub(super) enum About {
    This(Event),
    /// The server asks the client, or sends a ping.
    Asked {
        id: Box<str>,
        method: Box<str>,
        params: Option<Box<RawValue>>,
    },
    /// An answer to another request.
    Another,
    /// Nothing that the client of the request receives.
    Nothing,
}

/// Reads a message on the stream of the request with that id.
pub(super) fn about(
    message: ServerMessage,
    own: &RequestId,
    request: &UpstreamRequest,
    origin: &Origin,
) -> About {
    let this = |event: Option<Event>| event.map_or(About::Nothing, About::This);
    match message {
        ServerMessage::Result { id, result } if own.is(&id) => About::This(Event::Result(result)),
        ServerMessage::Error { id, error } if is_answer(&id, own) => {
            About::This(Event::Error(UpstreamError::in_message(error)))
        }
        // The stream belongs to one request, so an answer that cannot be read and has no id ends that request.
        ServerMessage::Unreadable { id, failure, .. } if own.is(&id) || &*id == "null" => {
            About::This(Event::Failed(failure))
        }
        ServerMessage::Result { .. }
        | ServerMessage::Error { .. }
        | ServerMessage::Unreadable { .. } => About::Another,
        ServerMessage::Notification { method, params } => {
            note(origin, &method);
            match (&*method, params) {
                ("notifications/progress", Some(params)) => {
                    let is_wanted = request.wants_progress && is_token(&params, own);
                    this(is_wanted.then_some(Event::Progress(params)))
                }
                ("notifications/message", Some(params)) => this(log(params, request)),
                _ => About::Nothing,
            }
        }
        ServerMessage::Request { id, method, params } => About::Asked { id, method, params },
        ServerMessage::Primed => About::Nothing,
    }
}

/// Returns `true` if an error answers that request. A server that could not read the request does not have its id,
/// and sends null or a value of its own.
fn is_answer(id: &str, own: &RequestId) -> bool {
    own.is(id) || id == "null" || id.starts_with('"')
}

/// Returns `true` if a progress notification belongs to that request.
fn is_token(params: &RawValue, id: &RequestId) -> bool {
    let token = Object::parse(params.get())
        .ok()
        .and_then(|params| params.get("progressToken"));
    token.is_some_and(|token| id.is(token.get()))
}

/// A log message, if the client asked for its level.
pub(super) fn log(params: Box<RawValue>, request: &UpstreamRequest) -> Option<Event> {
    log_at(request.log_level.as_deref(), params)
}

/// A log message at or above a level; nothing where none was asked for.
pub(super) fn log_at(asked: Option<&str>, params: Box<RawValue>) -> Option<Event> {
    let asked = asked?;
    let level = Object::parse(params.get())
        .ok()
        .and_then(|params| params.get_str("level").map(Cow::into_owned))?;
    is_at_least(&level, asked).then_some(Event::Log(params))
}

/// Notes what a notification reports about the server itself.
pub(super) fn note(origin: &Origin, method: &str) {
    if method == "notifications/tools/list_changed" {
        origin.tools.clear();
    }
}

/// Returns `true` if the server may ask the client while this request runs (2026-07-28 names the methods, and every
/// known server keeps to them). A request for the result of a server's own task is such a request (2025-11-25,
/// Tasks).
pub(super) fn may_ask(method: &str) -> bool {
    matches!(
        method,
        "tools/call" | "prompts/get" | "resources/read" | "tasks/result"
    )
}

/// The question that a request of the server puts; or raincheck's own answer, if the client may not be asked.
pub(super) fn question(
    id: &str,
    method: &str,
    params: Option<Box<RawValue>>,
    may_ask: impl FnOnce(InputKind) -> bool,
) -> Result<Question, Answer> {
    match InputKind::of(method) {
        Some(kind) if may_ask(kind) => Ok(Question {
            id: id.into(),
            method: method.into(),
            params,
        }),
        // A ping is for the peer of the connection, which is raincheck and not the client.
        None if method == "ping" => Err(Answer::Result("{}".into())),
        _ => Err(refused(
            code::METHOD_NOT_FOUND,
            "The client does not answer this",
        )),
    }
}

/// The answer to a question whose call cannot be found out.
pub(super) fn ambiguous() -> Answer {
    refused(
        code::INTERNAL,
        "It cannot be told which call asks; the client was not asked",
    )
}

fn refused(number: i64, message: &'static str) -> Answer {
    Answer::Refused(RpcError::new(number, message).to_json().into())
}

/// Returns the notification to the server that the client no longer waits for the answer to the request with that id.
pub(super) fn cancelled(id: &RequestId) -> String {
    let mut params = Writer::object();
    params
        .raw("requestId", id.as_json())
        .str("reason", "The client no longer waits");
    envelope::notification("notifications/cancelled", &params.end())
}

pub(super) fn response(id: &str, answer: &Answer) -> String {
    match answer {
        Answer::Result(result) => envelope::result(id, result),
        Answer::Refused(error) => envelope::error(id, error),
    }
}
