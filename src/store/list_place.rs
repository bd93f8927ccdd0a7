//! The order of a caller's list of tasks. Pure.

use std::cmp::Reverse;

use crate::task::id::TaskId;

/// A place in a list of tasks: when the task expires, in milliseconds, and its id. Neither changes.
pub type ListPlace = (u64, TaskId);

/// The first places that come after this one, at most `limit`. Those that expire last come first: of tasks with one
/// retention, the newest.
pub fn in_order(
    mut listed: Vec<ListPlace>,
    after: Option<ListPlace>,
    limit: usize,
) -> Vec<ListPlace> {
    listed.retain(|place| after.is_none_or(|after| *place < after));
    listed.sort_unstable_by_key(|place| Reverse(*place));
    // A store that reads its list in pieces may read a task twice.
    listed.dedup();
    listed.truncate(limit);
    listed
}
