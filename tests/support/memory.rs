//! The memory of a process, as the kernel reports it.

use std::fs;

const KIB: u64 = 1024;

/// The resident memory now, in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    field(pid, "VmRSS:")
}

/// Resets the peak.
pub(crate) fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a process of our own");
}

/// The most resident memory since the peak was reset, in bytes.
pub(crate) fn peak(pid: u32) -> u64 {
    field(pid, "VmHWM:")
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.expect("a process that runs") * KIB
}
