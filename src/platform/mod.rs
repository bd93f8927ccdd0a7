//! The differences between operating systems: one folder for each family, with the same functions.
//!
//! Nothing else in raincheck depends on the system that it is built for, but one option of the Redis library. `unix` has Linux and macOS, whose few differences are in
//! `unix/linux` and `unix/macos`.

#[cfg(not(target_os = "linux"))]
mod lacking;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// The use of the machine's resources by this process.
#[derive(Debug)]
pub struct ResourceUse {
    /// Seconds of processors, without those of other processes.
    pub cpu_seconds: f64,
    /// Bytes of address space.
    pub virtual_memory: u64,
    /// Bytes of memory.
    pub resident_memory: u64,
    pub threads: i64,
    /// When the process started, in seconds since 1970.
    pub start_time: u64,
    /// Files and connections.
    pub open_files: u64,
    /// `None`: there is no limit.
    pub open_files_max: Option<u64>,
}
