//! THE TASKS OF 2025-11-25: what a legacy client of that revision sees of the tasks in the store.
//!
//! The `MCP-Protocol-Version` of each request decides whether a request belongs here. raincheck reads the results
//! of `initialize` and `tools/list`, the calls that ask for a task, `tasks/*`, and the answers to the questions
//! of tasks. Everything else goes to the server.

use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};

use crate::downstream::body::Body;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Shared;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::Wish;
use crate::mcp::version::LEGACY_NEWEST;

mod call;
pub mod deliveries;
mod delivery;
mod edit;
pub mod native;
mod progress;
mod question;
mod question_stream;
mod questions;
mod requests;
mod result;

pub(in crate::downstream) use call::{Sent, known_of_calls, make_task, on_session};
pub(in crate::downstream) use edit::{Edit, relay};
pub(in crate::downstream) use questions::answered;

/// The answer to a request about a task. `None`: the server answers the request.
pub(in crate::downstream) async fn answer(
    front: &Shared,
    by: &Requester,
    request: &Request<'_>,
) -> Option<Response<Body>> {
    match &*request.method {
        "tasks/get" | "tasks/cancel" | "tasks/list" => {
            Box::pin(requests::answer(front, by, request)).await
        }
        "tasks/result" => Box::pin(result::answer(front, by, request)).await,
        _ => None,
    }
}

/// The session opened its GET stream on this replica: its tasks are told of there.
pub(in crate::downstream) fn stream_opened(front: &Shared, by: &Requester) {
    if let Some(session) = by.session {
        delivery::opened(front, session);
    }
}

/// Whether a call asks for a task. In older revisions `params.task` has no meaning.
pub(in crate::downstream) fn wishes(headers: &HeaderMap, params: &Object<'_>) -> bool {
    speaks(headers) && Wish::is_in(params)
}

/// Completes a message on a session whose version is not known here, where its words exist in 2025-11-25 only. A replica
/// that did not hear `initialize` would else ignore silently that the client wishes for a task.
pub(in crate::downstream) fn complete_version(parts: &mut Parts, message: &LegacyMessage<'_>) {
    let headers = &parts.headers;
    if headers.contains_key(PROTOCOL_VERSION) || !headers.contains_key(SESSION_ID) {
        return;
    }
    if let LegacyMessage::Request(request) = message
        && is_only_of_newest(request)
    {
        let newest = HeaderValue::from_static(LEGACY_NEWEST);
        parts.headers.insert(PROTOCOL_VERSION, newest);
    }
}

/// Whether a request has words that no older version has.
fn is_only_of_newest(request: &Request<'_>) -> bool {
    match &*request.method {
        "tools/call" => Wish::is_in(&request.params),
        method => method.starts_with("tasks/"),
    }
}

pub(in crate::downstream) fn speaks(headers: &HeaderMap) -> bool {
    let version = headers.get(PROTOCOL_VERSION);
    version.is_some_and(|version| version.as_bytes().trim_ascii() == LEGACY_NEWEST.as_bytes())
}
