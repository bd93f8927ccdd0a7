//! Questions of tasks as requests to their client, and what it answers, on any replica.

use std::collections::BTreeMap;

use hyper::{HeaderMap, Response, StatusCode};
use serde_json::value::RawValue;

use super::super::body::Body;
use super::super::inbound::requester::Requester;
use super::super::proxy::Shared;
use super::super::reply;
use super::super::tasks::ANSWERS_BYTES_MAX;
use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, string};
use crate::mcp::{input, tasks_2025};
use crate::runner::AnswerError;
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::id::TaskId;
use crate::task::machine::{CancelReason, Event};
use crate::task::state::Leg;
use crate::task::view_2025;

/// Takes an answer. `None`: it is for the server. An answer that nobody waits for is taken and
/// forgotten, as JSON-RPC has no answers to answers.
pub(in crate::downstream) async fn answered(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
    id: &RawValue,
    message: &Object<'_>,
) -> Option<Response<Body>> {
    let name = string(id)?;
    let (task, key) = view_2025::question_of(&name)?;
    let size: usize = message.iter().map(|(_, value)| value.get().len()).sum();
    if size > ANSWERS_BYTES_MAX {
        let error = RpcError::invalid_request("Invalid request: the answer is too large");
        return Some(reply::refusal(StatusCode::PAYLOAD_TOO_LARGE, &error));
    }
    let cannot = message.get("error").is_some_and(input::cannot_be_asked);
    if let Some(session) = by.session
        && cannot
        && front.carried.is_for_others(session, &name)
    {
        return Some(reply::empty(StatusCode::ACCEPTED));
    }
    let taken = take(front, by, headers, (task, key), message).await;
    Some(match taken {
        Ok(()) => reply::empty(StatusCode::ACCEPTED),
        Err(error) => reply::refusal(StatusCode::SERVICE_UNAVAILABLE, &error),
    })
}

async fn take(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
    (task, key): (TaskId, &str),
    message: &Object<'_>,
) -> Result<(), RpcError> {
    let away = || RpcError::internal("The task store does not answer; try again later");
    let found = front.find_wanted(task, &by.caller).await;
    let Some(loaded) = found.map_err(|_| away())? else {
        return Ok(());
    };
    let mut open = loaded.task.open_questions();
    let Some(answer) = open
        .find(|(question, _)| *question.key == *key)
        .map(|(_, request)| tasks_2025::answer(request, message))
    else {
        return Ok(());
    };
    drop(open);
    if input::refused(&answer).is_some() && matches!(loaded.task.leg, Leg::Parked(_)) {
        return give_up(front, &loaded).await.map_err(|_| away());
    }
    let answers = BTreeMap::from([(key.into(), answer)]);
    let from = front.forwarded(by, headers);
    match front.runner.answer(loaded, answers, from).await {
        Ok(()) | Err(AnswerError::Gone) => Ok(()),
        Err(AnswerError::Busy) => Err(RpcError::internal(
            "Too many calls are under way; try again later",
        )),
        Err(AnswerError::Store(_)) => Err(away()),
    }
}

/// A server of 2026 waits for results only: it cannot be told that its question was refused, and
/// without an answer it cannot go on.
async fn give_up(front: &Shared, loaded: &Loaded) -> Result<(), NotApplied> {
    let event = Event::Cancel {
        reason: Some(CancelReason::AnswerRefused),
    };
    match front.runner.ledger().apply(loaded, event).await {
        Ok(_) | Err(NotApplied::Rejected(..) | NotApplied::Gone) => Ok(()),
        Err(away @ NotApplied::Store(_)) => Err(away),
    }
}
