//! Takes the answers of a client to the questions of its tasks, on any replica.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::{HeaderMap, Response, StatusCode};

use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::session::TaskQuestion;
use crate::downstream::outbound::response;
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::service::{ANSWER_BYTES_MAX, TaskError};
use crate::mcp::error::RpcError;
use crate::mcp::json::Object;
use crate::mcp::{input, tasks_2025};
use crate::task::id::TaskId;
use crate::task::state::Leg;

/// Takes the answer to a question. An answer to no open question is taken and dropped, because JSON-RPC has no error
/// for an answer.
pub(in crate::downstream) async fn take_answer(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    question: &TaskQuestion,
    message: &Object<'_>,
) -> Response<Body> {
    let size: usize = message.iter().map(|(_, value)| value.get().len()).sum();
    if size > ANSWER_BYTES_MAX {
        let error = RpcError::invalid_request("Invalid request: the answer is too large");
        return response::refusal(StatusCode::PAYLOAD_TOO_LARGE, &error);
    }
    let cannot = message.get("error").is_some_and(input::cannot_be_asked);
    // Of clients that share the call, another one was asked, too, and may still give an answer.
    if let Some(session) = by.session
        && cannot
        && proxy.calls.others_ask(session, &question.id)
    {
        return response::empty(StatusCode::ACCEPTED);
    }
    let taken = take(proxy, by, headers, (question.task, &question.key), message).await;
    match taken {
        Ok(()) => response::empty(StatusCode::ACCEPTED),
        // JSON-RPC has no error for an answer, so the HTTP status shows that it was not taken.
        Err(error) => response::refusal(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

async fn take(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    (task, key): (TaskId, &str),
    message: &Object<'_>,
) -> Result<(), RpcError> {
    let tasks = proxy.tasks_for(by);
    // Calls that several requests share have a record that was not announced, and ask in this form, too.
    let found = tasks.find_unannounced(task).await;
    let Some(loaded) = found.map_err(|_| RpcError::store_unavailable())? else {
        return Ok(());
    };
    let mut open = loaded.task.open_questions();
    let Some(answer) = open
        .find(|(question, _)| *question.key == *key)
        .map(|(_, request)| tasks_2025::answer(request, message))
    else {
        return Ok(());
    };
    // The iterator borrows from the record, which moves into the answer below.
    drop(open);
    let taken = if input::refused(&answer).is_some() && matches!(loaded.task.leg, Leg::Parked(_)) {
        // A server of 2026-07-28 accepts only results as answers. It cannot go on after a refusal.
        tasks.cancel_unanswered(&loaded).await.map(drop)
    } else {
        let answers = BTreeMap::from([(key.into(), answer)]);
        tasks
            .answer(loaded, answers, proxy.forwarded(by, headers))
            .await
    };
    match taken {
        Ok(()) | Err(TaskError::Unknown) => Ok(()),
        Err(TaskError::Busy) => Err(RpcError::internal(
            "Too many calls are under way; try again later",
        )),
        Err(TaskError::Unreadable) => Err(RpcError::internal("The task cannot be read")),
        Err(TaskError::StoreUnavailable) => Err(RpcError::store_unavailable()),
    }
}
