//! What memory a process holds, by the kernel's word.

use std::fs;

const KIB: u64 = 1024;

/// What it holds now, in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    field(pid, "VmRSS:")
}

/// From here on the peak counts.
pub(crate) fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a process of our own");
}

/// The most that it held since.
pub(crate) fn peak(pid: u32) -> u64 {
    field(pid, "VmHWM:")
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.expect("a process that runs") * KIB
}
