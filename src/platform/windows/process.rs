//! The job object of a process: when its last handle closes, which it does however the process ends, Windows ends all processes
//! in it.

use std::io;
use std::path::PathBuf;

use win32job::{ExtendedLimitInfo, Job, JobError};

/// The path of this program.
pub fn own_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "raincheck.exe".into())
}

/// Does nothing: the system decides what other processes of the same user may read.
#[expect(
    clippy::unnecessary_wraps,
    reason = "Linux has such a system call, and it can fail"
)]
pub fn keep_private() -> io::Result<()> {
    Ok(())
}

/// Makes all processes that this one starts end with it.
pub fn tie_children() -> io::Result<()> {
    join_new_job().map_err(io::Error::from)
}

/// Puts this process in a job of its own. What it starts from now on is in the job, too.
fn join_new_job() -> Result<(), JobError> {
    let mut limits = ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    let job = Job::create_with_limit_info(&limits)?;
    job.assign_current_process()?;
    // The handle stays open until the process ends.
    job.into_handle();
    Ok(())
}

/// Returns `true` if the console shows colours, after it was asked to.
pub fn terminal_takes_colours() -> bool {
    nu_ansi_term::enable_ansi_support().is_ok()
}
