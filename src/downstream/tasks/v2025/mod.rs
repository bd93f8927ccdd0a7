//! THE TASKS OF 2025-11-25: what a legacy client of that revision sees of the tasks in the store.
//!
//! The `MCP-Protocol-Version` of each request decides whether a request belongs here. raincheck reads the results
//! of `initialize` and `tools/list`, the calls that ask for a task, `tasks/*`, and the answers to the questions
//! of tasks. Everything else goes to the server.

use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};

use crate::downstream::body::Body;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::TaskOp;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::refusal::Refusal;
use crate::downstream::tasks::service::TaskError;
use crate::mcp::error::RpcError;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::Wish;
use crate::mcp::version::LEGACY_NEWEST;

mod advertised;
pub mod deliveries;
mod delivery;
mod make_task;
pub mod native;
mod progress;
mod question;
mod question_stream;
mod questions;
mod requests;
mod result;

pub(in crate::downstream) use advertised::Advertised;
pub(in crate::downstream) use make_task::make_task;
pub(in crate::downstream) use questions::take_answer;

/// The response to a request about a task.
pub(in crate::downstream) enum TaskResponse {
    Known(Response<Body>),
    /// The store does not know the task: the server may have tasks of its own.
    Unknown(Rpc),
}

impl TaskResponse {
    /// False: raincheck does not know the task, and the server may know it.
    pub(in crate::downstream) fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    /// The response to the client, if the server is not asked about the task as well.
    pub(in crate::downstream) fn into_response(self) -> Response<Body> {
        match self {
            Self::Known(response) => response,
            Self::Unknown(rpc) => rpc.into_response(),
        }
    }

    fn refused(id: &str, refusal: Refusal) -> Self {
        let rpc = match refusal {
            Refusal::Task(TaskError::Unknown) => {
                let unknown = Rpc::error(id, &RpcError::unknown_task());
                return Self::Unknown(unknown.on_session());
            }
            Refusal::Task(TaskError::StoreUnavailable) => Rpc::store_unavailable(id),
            Refusal::Task(TaskError::Unreadable) => Rpc::unreadable_task(id).on_session(),
            Refusal::Task(TaskError::Busy) => Rpc::busy(id),
            Refusal::Request(error) => Rpc::error(id, &error).on_session(),
        };
        Self::Known(rpc.into_response())
    }
}

/// Answers a request about a task.
pub(in crate::downstream) async fn answer(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
    op: TaskOp,
) -> TaskResponse {
    let (id, params) = (request.id, &request.params);
    let result = match op {
        TaskOp::Get => Box::pin(requests::get(proxy, by, id, params)).await,
        TaskOp::Cancel => Box::pin(requests::cancel(proxy, by, params)).await,
        TaskOp::List => Box::pin(requests::list(proxy, by, params)).await,
        TaskOp::Result => {
            return match Box::pin(result::wait_for(proxy, by, id, params)).await {
                Ok(response) => TaskResponse::Known(response),
                Err(refusal) => TaskResponse::refused(id.get(), refusal),
            };
        }
    };
    match result {
        Ok(result) => TaskResponse::Known(Rpc::result(id.get(), &result).into_response()),
        Err(refusal) => TaskResponse::refused(id.get(), refusal),
    }
}

/// Notes that the session opened its GET stream on this replica: notifications of its tasks are sent there.
pub(in crate::downstream) fn stream_opened(proxy: &Arc<Proxy>, by: &Requester) {
    if let Some(session) = by.session {
        delivery::opened(proxy, session);
    }
}

/// Returns `true` if a call asks for a task. In older revisions `params.task` has no meaning.
pub(in crate::downstream) fn wishes(headers: &HeaderMap, params: &Object<'_>) -> bool {
    speaks(headers) && Wish::is_in(params)
}

/// Completes a message on a session whose version is not known here, where its words exist in 2025-11-25 only. A
/// replica that did not receive `initialize` would else ignore silently that the client wishes for a task.
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

/// Returns `true` if a request has words that no older version has.
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
