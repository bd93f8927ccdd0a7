//! System calls about this process.

use std::io;
use std::path::PathBuf;

use rustix::process::{
    DumpableBehavior, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal,
};

/// The path of this program. It also works after the file was replaced, as by an upgrade.
pub fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Makes the kernel kill this process when its parent ends. A parent that has already ended is found by comparing the
/// parent's id.
pub(in super::super) fn tie_to(parent: u32) -> io::Result<()> {
    // The signal is set before the parent is compared, so that a parent that ends in between is noticed in one of both
    // ways.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let now = getppid().and_then(|now| u32::try_from(now.as_raw_pid()).ok());
    if now == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::other("its parent has ended"))
    }
}

/// Keeps the memory and the environment of this process from other processes of the same user (the wrapped program is
/// one), and from crash dumps. A program that this process executes starts without this protection.
pub fn keep_private() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Returns `true` if the process was started with SIGHUP ignored.
pub(in super::super) fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is the first.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// Does nothing: each child ties itself to the life of this process.
#[expect(
    clippy::unnecessary_wraps,
    reason = "Windows has a job for it, which can fail"
)]
pub fn tie_children() -> io::Result<()> {
    Ok(())
}

/// Returns `true`: terminals show colours.
pub fn terminal_takes_colours() -> bool {
    true
}
