//! Processes that tests know by their pid only: children of the program under test, and their children.

use std::time::Duration;

use crate::eventually::eventually;

/// Whether the process runs. A zombie does not count as running.
pub(crate) fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub(crate) async fn until_gone(patience: Duration, pid: u32) {
    let what = format!("the end of process {pid}");
    eventually(patience, &what, async || !is_there(pid)).await;
}
