//! `tasks/get`, `tasks/cancel` and `tasks/list` of 2025-11-25.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::delivery;
use crate::downstream::calls::registry::{CallEntry, CallKind};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::cursor;
use crate::downstream::tasks::refusal::{Refusal, task_id};
use crate::downstream::tasks::service::{CancelOutcome, TaskError};
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::Object;
use crate::store::ListPlace;
use crate::task::view_2025;

pub(super) async fn get(
    proxy: &Arc<Proxy>,
    by: &Requester,
    id: &RawValue,
    params: &Object<'_>,
) -> Result<String, Refusal> {
    let task = task_id(params)?;
    let found = match cancellable(proxy, by, id) {
        Some(entry) => tokio::select! {
            found = proxy.poll(by, task) => found?,
            // No client reads this answer.
            _ = entry.cancelled() => return Err(TaskError::Busy.into()),
        },
        None => proxy.poll(by, task).await?,
    };
    let task = found.ok_or(TaskError::Unknown)?.task;
    if task.is_ended() {
        delivery::ended(proxy, by, task.id);
    } else {
        delivery::follow(proxy, by, task.id, task.status());
    }
    Ok(view_2025::task(&task, proxy.runner.poll_interval_ms(&task)))
}

/// Enters a request that may wait, so that its client can cancel it.
fn cancellable(proxy: &Proxy, by: &Requester, id: &RawValue) -> Option<CallEntry> {
    let session = by.session?;
    let entered = proxy.calls.enter(CallKind::Carried, session, id.get());
    // A poll that finds no room, or whose id is in use, is answered as well, but cannot be cancelled.
    entered.ok()
}

pub(super) async fn cancel(
    proxy: &Arc<Proxy>,
    by: &Requester,
    params: &Object<'_>,
) -> Result<String, Refusal> {
    let tasks = proxy.tasks_for(by);
    match tasks.cancel(task_id(params)?).await? {
        CancelOutcome::Cancelled(task) => {
            Ok(view_2025::task(&task, proxy.runner.poll_interval_ms(&task)))
        }
        CancelOutcome::HadEnded(task) => {
            let status = task.status().word();
            let message = format!("Cannot cancel task: already in terminal status '{status}'");
            Err(RpcError::invalid_params(message).into())
        }
    }
}

/// The caller's own tasks, page by page. A caller without tasks here may have some at the server.
pub(super) async fn list(
    proxy: &Arc<Proxy>,
    by: &Requester,
    params: &Object<'_>,
) -> Result<String, Refusal> {
    let has_others = proxy.settings.pass_native_tasks;
    if !by.has_credentials && has_others {
        // An unknown task, and not a refusal, because only that lets the request pass to the server.
        return Err(TaskError::Unknown.into());
    }
    if !by.has_credentials {
        // One list would show the tasks of all such clients (2025-11-25, Task Isolation).
        let message = "Method not found: only clients with credentials can list their tasks";
        return Err(RpcError::new(code::METHOD_NOT_FOUND, message).into());
    }
    let after = start_of_page(params).map_err(|error| {
        if has_others {
            // The cursor may be the server's.
            return TaskError::Unknown.into();
        }
        Refusal::from(error)
    })?;
    let page = proxy.tasks_of(&by.caller).page(after).await?;
    if page.has_none && has_others {
        return Err(TaskError::Unknown.into());
    }
    let tasks = page.tasks.iter();
    let tasks = tasks.filter(|task| Proxy::lacking_scopes(by, &task.name).is_none());
    let tasks = tasks.map(|task| view_2025::task(task, proxy.runner.poll_interval_ms(task)));
    let next = page.last.map(cursor::encode);
    let tasks: Vec<String> = tasks.collect();
    Ok(view_2025::page(&tasks, next.as_deref()))
}

/// The task behind which the wanted page begins. `None`: it is the first page.
fn start_of_page(params: &Object<'_>) -> Result<Option<ListPlace>, RpcError> {
    if !params.contains("cursor") {
        return Ok(None);
    }
    let text = params.get_str("cursor");
    let after = text.and_then(|text| cursor::decode(&text));
    let unknown = || RpcError::invalid_params("Invalid params: the cursor is unknown");
    after.map(Some).ok_or_else(unknown)
}
