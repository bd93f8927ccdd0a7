//! Ending and pausing the processes that a bar started, by their pid.

use std::process::{Child, Command};

/// SIGKILL, which a stopped process gets too, and the end of the process.
pub(super) fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

pub(super) fn signal(child: Option<&Child>, signal: &str) {
    let pid = child.expect("the process runs").id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(
        sent.is_ok_and(|status| status.success()),
        "kill -s {signal}"
    );
}

/// SIGKILL to a process that one of ours left behind.
pub(crate) fn end(pid: u32) {
    let _ = Command::new("kill")
        .args(["-s", "KILL", &pid.to_string()])
        .status();
}
