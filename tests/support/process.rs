//! Processes that tests know by their pid alone: children of the program under test, and what those started.

use std::time::Duration;

use crate::eventually::eventually;

/// The process runs. One that has ended and waits for its parent to look does not.
pub(crate) fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub(crate) async fn until_gone(patience: Duration, pid: u32) {
    let what = format!("the end of process {pid}");
    eventually(patience, &what, async || !is_there(pid)).await;
}
