//! Lines that come with every request. Each connection thread gathers its own, because threads that write into one buffer
//! wait for each other, and for its memory to come from another core.

use super::super::stamp::Stamp;
use crate::base::lock::Mutex;
use crate::net::connection_threads::{PerThread, THREADS_MAX};

/// A thread hands over what it has from so many bytes on.
pub(super) const GATHERED_MAX: usize = 4 << 10;

/// The most bytes that all threads have.
pub(super) const ALL_GATHERED_MAX: usize = (THREADS_MAX + 1) * GATHERED_MAX;

/// The lines of all threads. A thread locks its own, and only what writes the log locks those of another.
pub(super) type Gathered = PerThread<Mutex<GatheredLines>>;

/// The lines of one thread.
#[derive(Debug, Default)]
pub(in crate::telemetry::log) struct GatheredLines {
    pub(in crate::telemetry::log) bytes: Vec<u8>,
    stamp: Stamp,
}

impl GatheredLines {
    /// Adds the time `now_ns` to the line that is being written.
    pub(in crate::telemetry::log) fn stamp(&mut self, now_ns: u64) {
        self.bytes.extend_from_slice(self.stamp.of(now_ns));
    }
}
