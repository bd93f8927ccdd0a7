//! `tasks/get`, `tasks/cancel` and `tasks/list`: answered from the store, on any replica.

use std::cmp::Reverse;

use futures_util::stream::{self, StreamExt as _};
use hyper::Response;

use super::super::body::Body;
use super::super::inbound::requester::Requester;
use super::super::proxy::Shared;
use super::super::reply::Rpc;
use super::super::tasks::{Refusal, STORE_IS_AWAY};
use super::delivery;
use crate::mcp::base64;
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::store::StoreError;
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::id::TaskId;
use crate::task::machine::Event;
use crate::task::view_2025;

/// Tasks on one page of the list.
const PAGE: usize = 100;

/// Records that are read at the same time for one list.
const READ_AT_ONCE: usize = 32;

/// `None`: the task is unknown here, and the server may have tasks of its own.
pub(super) async fn answer(
    front: &Shared,
    by: &Requester,
    request: &Request<'_>,
) -> Option<Response<Body>> {
    let answered = match &*request.method {
        "tasks/get" => get(front, by, &request.params).await,
        "tasks/cancel" => cancel(front, by, &request.params).await,
        _ => list(front, by, &request.params).await,
    };
    let rpc = match answered {
        Ok(result) => Rpc::result(request.id.get(), &result),
        Err(refusal) => refused(front, request.id.get(), refusal)?,
    };
    Some(rpc.into_response())
}

/// `None`: the server may know the task.
pub(super) fn refused(front: &Shared, id: &str, refusal: Refusal) -> Option<Rpc> {
    Some(match refusal {
        Refusal::Unknown if front.settings.pass_native_tasks => return None,
        Refusal::Unknown => Rpc::error(id, &RpcError::unknown_task()).on_session(),
        Refusal::Error(error) => Rpc::error(id, &error).on_session(),
        Refusal::Store => Rpc::store_unavailable(id),
        Refusal::Busy => Rpc::busy(id),
    })
}

pub(super) fn named(params: &Object<'_>) -> Result<TaskId, Refusal> {
    let text = params
        .get_str("taskId")
        .ok_or_else(|| RpcError::invalid_params("Invalid params: taskId must be a string"))?;
    TaskId::parse(&text).ok_or(Refusal::Unknown)
}

/// The caller gets the same error for an unknown, expired, unannounced or foreign task.
pub(super) async fn find(front: &Shared, by: &Requester, id: TaskId) -> Result<Loaded, Refusal> {
    let found = front.find_by_id(id, &by.caller).await?;
    found.ok_or(Refusal::Unknown)
}

async fn get(front: &Shared, by: &Requester, params: &Object<'_>) -> Result<String, Refusal> {
    let task = find(front, by, named(params)?).await?.task;
    if task.is_ended() {
        delivery::ended(front, by, task.id);
    } else {
        delivery::follow(front, by, task.id, task.status());
    }
    Ok(view_2025::task(&task, front.runner.ledger().now_ms()))
}

/// A call that this replica carries is stopped also while the store is away.
async fn cancel(front: &Shared, by: &Requester, params: &Object<'_>) -> Result<String, Refusal> {
    let id = named(params)?;
    let committing = commit_cancel(front, by, id);
    tokio::pin!(committing);
    tokio::select! {
        answered = &mut committing => {
            // It may refuse at once.
            if let Err(Refusal::Store) = &answered {
                front.runner.stop(id, &by.caller);
            }
            return answered;
        }
        () = tokio::time::sleep(STORE_IS_AWAY) => {}
    }
    front.runner.stop(id, &by.caller);
    committing.await
}

async fn commit_cancel(front: &Shared, by: &Requester, id: TaskId) -> Result<String, Refusal> {
    let loaded = find(front, by, id).await?;
    let ledger = front.runner.ledger();
    match ledger.apply(&loaded, Event::Cancel { reason: None }).await {
        // The owner sees the change and tells the server.
        Ok((cancelled, _)) => Ok(view_2025::task(&cancelled.task, ledger.now_ms())),
        Err(NotApplied::Rejected(_, stands)) => {
            let status = stands.task.status().word();
            let message = format!("Cannot cancel task: already in terminal status '{status}'");
            Err(RpcError::invalid_params(message).into())
        }
        Err(NotApplied::Gone) => Err(Refusal::Unknown),
        Err(NotApplied::Store(error)) => Err(error.into()),
    }
}

/// The caller's own tasks, page by page. Who has none here may have some at the server.
async fn list(front: &Shared, by: &Requester, params: &Object<'_>) -> Result<String, Refusal> {
    let has_others = front.settings.pass_native_tasks;
    if !by.has_credentials && has_others {
        return Err(Refusal::Unknown);
    }
    if !by.has_credentials {
        let message = "Method not found: only clients with credentials can list their tasks";
        return Err(RpcError::new(code::METHOD_NOT_FOUND, message).into());
    }
    let after = match (params.get("cursor"), cursor(params)) {
        (None, _) => None,
        (Some(_), Some(after)) => Some(after),
        (Some(_), None) if has_others => return Err(Refusal::Unknown),
        (Some(_), None) => {
            let error = RpcError::invalid_params("Invalid params: the cursor is unknown");
            return Err(error.into());
        }
    };
    let ledger = front.runner.ledger();
    let listed = ledger.store().listed(&by.caller).await?;
    if listed.is_empty() && has_others {
        return Err(Refusal::Unknown);
    }
    // As many are read as a page has, and a few more.
    let mut reading = stream::iter(in_order(listed, after))
        .map(async |place| (place, front.find_by_id(place.1, &by.caller).await))
        .buffered(READ_AT_ONCE);
    let (mut tasks, mut last, mut next) = (Vec::with_capacity(PAGE), None, None);
    while let Some((place, found)) = reading.next().await {
        let found = match found {
            // Of one task that cannot be read the others are told all the same.
            Err(StoreError::Corrupt(_) | StoreError::Newer) => None,
            found => found?,
        };
        let Some(Loaded { task, .. }) = found else {
            continue;
        };
        if tasks.len() == PAGE {
            next = last;
            break;
        }
        tasks.push(view_2025::task(&task, ledger.now_ms()));
        last = Some(place);
    }
    let next = next.map(cursor_after);
    Ok(view_2025::page(&tasks, next.as_deref()))
}

/// What comes after that place, those first that go last: of tasks with the same terms the newest.
fn in_order(mut listed: Vec<Place>, after: Option<Place>) -> Vec<Place> {
    listed.retain(|place| after.is_none_or(|after| *place < after));
    listed.sort_unstable_by_key(|place| Reverse(*place));
    listed
}

/// When a task goes, and which it is: neither changes.
type Place = (u64, TaskId);

/// Names the last task of a page.
fn cursor_after((expires_ms, id): Place) -> String {
    let mut out = String::new();
    base64::encode(
        &[&expires_ms.to_be_bytes()[..], id.as_bytes()].concat(),
        &mut out,
    );
    out
}

fn cursor(params: &Object<'_>) -> Option<Place> {
    let bytes = base64::decode(&params.get_str("cursor")?)?;
    let (expires_ms, id) = bytes.split_first_chunk::<8>()?;
    let id = TaskId::from_bytes(id.try_into().ok()?);
    Some((u64::from_be_bytes(*expires_ms), id))
}
