//! The figures of a process that each system may have.

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
