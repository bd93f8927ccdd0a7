//! The end of a task, with its result wherever the store keeps it. Pure.

use serde_json::value::RawValue;

use super::state::{Outcome, Payload, Task};
use crate::mcp::json::raw;

/// The end of a task, from which each front makes its answer.
#[derive(Debug)]
pub enum TaskEnd<'t> {
    Completed(TaskResult<'t>),
    /// A JSON-RPC error object.
    Failed(&'t RawValue),
    Cancelled,
}

/// The result of a task.
#[derive(Debug, Clone, Copy)]
pub enum TaskResult<'t> {
    Inline(&'t RawValue),
    /// JSON from an entry of its own.
    Kept(&'t str),
}

impl<'t> TaskEnd<'t> {
    /// `kept`: the entry with the result, where the record only names it. Returns `None` if the task has not ended, or
    /// the entry is no text.
    pub fn of(task: &'t Task, kept: Option<&'t [u8]>) -> Option<Self> {
        Some(match task.outcome.as_ref()? {
            Outcome::Completed(Payload::Inline(result)) => {
                Self::Completed(TaskResult::Inline(result))
            }
            Outcome::Completed(Payload::Kept { .. }) => {
                Self::Completed(TaskResult::Kept(std::str::from_utf8(kept?).ok()?))
            }
            Outcome::Failed(error) => Self::Failed(error),
            Outcome::Cancelled => Self::Cancelled,
        })
    }

    /// The result of a task that completed.
    pub fn result(&self) -> Option<TaskResult<'t>> {
        match self {
            Self::Completed(result) => Some(*result),
            Self::Failed(_) | Self::Cancelled => None,
        }
    }
}

impl<'t> TaskResult<'t> {
    /// The result as JSON.
    pub fn text(self) -> &'t str {
        match self {
            Self::Inline(result) => result.get(),
            Self::Kept(text) => text,
        }
    }

    /// A copy of the result. `None`: the entry is no JSON.
    pub fn to_raw(self) -> Option<Box<RawValue>> {
        match self {
            Self::Inline(result) => Some(result.to_owned()),
            Self::Kept(text) => raw(text.to_owned()).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Fence;
    use crate::task::machine::tests::task;
    use crate::task::state::Leg;

    #[test]
    fn a_result_is_found_wherever_it_is_kept() {
        let ended = |outcome| Task {
            outcome,
            ..task(Leg::Sent(1), true)
        };
        assert!(TaskEnd::of(&ended(None), Some(b"{}")).is_none());
        let json = raw("{}".to_owned()).unwrap();
        let inline = ended(Some(Outcome::Completed(Payload::Inline(json.clone()))));
        let of_record = TaskEnd::of(&inline, None).unwrap().result().unwrap();
        let kept = ended(Some(Outcome::Completed(Payload::Kept {
            fence: Fence(1),
            bytes: 2,
            is_error: false,
        })));
        let of_entry = TaskEnd::of(&kept, Some(b"{}")).unwrap().result().unwrap();
        for result in [of_record, of_entry] {
            assert_eq!(result.text(), "{}");
            assert_eq!(result.to_raw().unwrap().get(), "{}");
        }
        assert!(TaskEnd::of(&kept, None).is_none());
        assert!(TaskEnd::of(&kept, Some(b"\xff")).is_none());
        assert!(TaskResult::Kept("{").to_raw().is_none());
        let failed = ended(Some(Outcome::Failed(json)));
        assert!(TaskEnd::of(&failed, None).unwrap().result().is_none());
    }
}
