//! The ids of our events.

use crate::task::id::TaskId;

/// What our event ids begin with: `raincheck/<hold>/<number>`.
pub(super) const PREFIX: &str = "raincheck/";

/// What an event's id is, on every replica.
pub(super) fn event_id(hold: TaskId, number: u64) -> String {
    format!("{PREFIX}{hold}/{number}")
}
