//! LARGE RESULTS: `resources/read` of what an excerpt left out, for the caller whose result it is, on any replica.
//!
//! Only names of raincheck's own come here. Every other resource is the server's, and its request is not looked at.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::inbound::requester::Requester;
use super::outbound::response::Rpc;
use super::proxy::Proxy;
use super::tasks::service::{TaskError, WholeTask};
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::Writer;
use crate::mcp::request::Request;
use crate::mcp::version::Era;
use crate::task::large_results::ResultUri;
use crate::task::ranges::as_resource;
use crate::task::state::{Outcome, Payload, Task};

/// A larger result is parsed on a thread of its own: a smaller one takes a fraction of a millisecond.
const BLOCKING_BYTES: usize = 256 << 10;

/// A part of a large result costs the memory of the whole one, so only so many are read at the same time.
static TURNS: Semaphore = Semaphore::const_new(4);

/// The time that a reader waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// The answer to `resources/read` of a result.
pub(super) async fn read(proxy: &Arc<Proxy>, by: &Requester, request: &Request<'_>) -> Rpc {
    let id = request.id.get();
    let uri = request.params.get_str("uri").unwrap_or_default();
    let unknown = || Rpc::error(id, &not_found(&uri, by.era));
    let Some(named) = ResultUri::parse(&uri) else {
        return unknown();
    };
    // The turn is kept until the part is made: until then the whole result is in memory.
    let (whole, _turn) = match result_of(proxy, by, &named).await {
        Ok(Some(found)) => found,
        Ok(None) | Err(TaskError::Unknown) => return unknown(),
        Err(TaskError::StoreUnavailable) => return Rpc::store_unavailable(id),
        Err(TaskError::Unreadable) => return Rpc::unreadable_task(id),
        Err(TaskError::Busy) => return Rpc::busy(id),
    };
    let read = range_of(whole, uri.clone().into_owned(), named, by.era).await;
    read.map_or_else(unknown, |read| Rpc::result(id, &read))
}

/// Reads a part of a result. A range needs the whole result parsed, which would keep other requests waiting if the result
/// is large.
async fn range_of(whole: WholeTask, uri: String, named: ResultUri, era: Era) -> Option<String> {
    let is_large = whole.result()?.len() > BLOCKING_BYTES;
    let read = move || as_resource(&uri, &named, whole.result()?, era);
    if is_large {
        // A panic on that thread is answered like a part that does not exist.
        tokio::task::spawn_blocking(read).await.ok().flatten()
    } else {
        read()
    }
}

/// A turn to have a large result in memory. `None`: the result of this task is small.
pub(super) async fn turn(task: &Task) -> Result<Option<SemaphorePermit<'static>>, TaskError> {
    let bytes = match &task.outcome {
        Some(Outcome::Completed(Payload::Kept { bytes, .. })) => *bytes,
        Some(Outcome::Completed(Payload::Inline(_)) | Outcome::Failed(_) | Outcome::Cancelled)
        | None => 0,
    };
    if bytes <= BLOCKING_BYTES as u64 {
        return Ok(None);
    }
    match timeout(TURN_PATIENCE, TURNS.acquire()).await {
        Ok(Ok(turn)) => Ok(Some(turn)),
        Ok(Err(_)) | Err(_) => Err(TaskError::Busy),
    }
}

/// The result with this name. The task need not be announced: the result of a call whose client waited has a name, too.
async fn result_of(
    proxy: &Arc<Proxy>,
    by: &Requester,
    named: &ResultUri,
) -> Result<Option<(WholeTask, Option<SemaphorePermit<'static>>)>, TaskError> {
    let tasks = proxy.tasks_for(by);
    match tasks.find_unannounced(named.task).await? {
        // The record of a call that runs on in its stream: what it holds is no result.
        Some(found) if found.task.log.is_some() => Ok(None),
        Some(found) => {
            // The turn comes first, because the load below brings the whole result into memory.
            let turn = turn(&found.task).await?;
            Ok(Some((tasks.whole(found.task).await?, turn)))
        }
        None => Ok(None),
    }
}

/// A caller gets the same error for a result that does not exist, or is not there yet, and for another's.
fn not_found(uri: &str, era: Era) -> RpcError {
    let code = match era {
        Era::Modern => code::INVALID_PARAMS,
        Era::Legacy => code::LEGACY_RESOURCE_NOT_FOUND,
    };
    let mut data = Writer::object();
    data.str("uri", uri);
    RpcError::new(code, "Resource not found").with_data(data.end())
}
