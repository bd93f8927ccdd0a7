//! THE TASKS OF 2025-11-25: what a legacy client of that revision sees of the tasks in the store.
//!
//! The `MCP-Protocol-Version` of each request decides whether a request belongs here. raincheck reads the results
//! of `initialize` and `tools/list`, the calls that ask for a task, `tasks/*`, and the answers to the questions
//! of tasks. Everything else goes to the server.

use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};

use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::legacy::words::Words;
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

pub(in crate::downstream) use call::{Sent, only_as_task};
pub(in crate::downstream) use edit::{Edit, relay};
pub(in crate::downstream) use questions::answered;

/// Who answers a message.
pub(in crate::downstream) enum Looked {
    Answered(Response<Body>),
    /// The server does. Its answer is edited in this way.
    Pass(Option<Edit>),
}

/// Answers a message of a legacy client in front of a legacy server, or leaves it to the server.
pub(in crate::downstream) async fn look(
    front: &Shared,
    by: &Requester,
    parts: &Parts,
    body: &Bytes,
) -> Looked {
    let headers = &parts.headers;
    let speaks = speaks(headers);
    // A request without a session may begin one: then the answer of the server decides on the revision.
    let may_begin = !headers.contains_key(SESSION_ID);
    if !speaks && !may_begin {
        return Looked::Pass(None);
    }
    let answered = match Words::of(body) {
        Words::Request(request) if speaks => {
            let edit = Edit::of(front, by, &request);
            if edit.is_some() {
                return Looked::Pass(edit);
            }
            answer(front, by, &request, || {
                call::on_session(front, by, headers, &request)
            })
            .await
        }
        Words::Request(request) if request.method == "initialize" => {
            return Looked::Pass(Edit::of(front, by, &request));
        }
        Words::Answer(id, message) if speaks => answered(front, by, headers, id, &message).await,
        Words::Request(_) | Words::Answer(..) | Words::Notification(..) | Words::Other => None,
    };
    match answered {
        Some(response) => Looked::Answered(response),
        None => Looked::Pass(None),
    }
}

/// Answers a request of this revision. `None`: the server answers it. `send` makes what goes to the server for a
/// call.
pub(in crate::downstream) async fn answer(
    front: &Shared,
    by: &Requester,
    request: &Request<'_>,
    send: impl FnOnce() -> Option<Sent>,
) -> Option<Response<Body>> {
    match &*request.method {
        "tools/call" => Box::pin(call::answer(front, by, request, send)).await,
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
pub(in crate::downstream) fn complete_version(parts: &mut Parts, body: &[u8]) {
    let headers = &parts.headers;
    if headers.contains_key(PROTOCOL_VERSION) || !headers.contains_key(SESSION_ID) {
        return;
    }
    if let Words::Request(request) = Words::of(body)
        && is_only_of_newest(&request)
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
