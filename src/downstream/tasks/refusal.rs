//! Why a `tasks/*` request has no result, in either revision.

use super::service::TaskError;
use crate::mcp::error::RpcError;
use crate::mcp::json::Object;
use crate::store::StoreError;
use crate::task::id::TaskId;

/// Why a request has no result.
#[derive(Debug)]
pub(in crate::downstream) enum Refusal {
    Task(TaskError),
    /// The request itself is wrong.
    Request(RpcError),
}

impl From<TaskError> for Refusal {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Task(error.into())
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self::Request(error)
    }
}

/// The task that a request names.
pub(in crate::downstream) fn task_id(params: &Object<'_>) -> Result<TaskId, Refusal> {
    let text = params
        .get_str("taskId")
        .ok_or_else(|| RpcError::invalid_params("Invalid params: taskId must be a string"))?;
    // A text that is no id gets the answer of an unknown task, byte for byte.
    Ok(TaskId::parse(&text).ok_or(TaskError::Unknown)?)
}
