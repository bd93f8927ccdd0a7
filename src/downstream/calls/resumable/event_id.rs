//! The ids of the events that raincheck numbers itself.

use crate::task::id::TaskId;

/// Begins every such id: `raincheck/<call>/<number>`.
pub(super) const PREFIX: &str = "raincheck/";

/// The id of an event, the same on every replica.
pub(super) fn event_id(call: TaskId, number: u64) -> String {
    format!("{PREFIX}{call}/{number}")
}
