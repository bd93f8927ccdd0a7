//! The operating system's figures of this process, under the names that every client library of Prometheus gives
//! them.

use prometheus::{Counter, IntGauge};

use super::list::List;

#[derive(Debug)]
pub struct ResourceMetrics {
    pub cpu_seconds: Counter,
    pub open_fds: IntGauge,
    pub max_fds: IntGauge,
    pub virtual_memory: IntGauge,
    pub resident_memory: IntGauge,
    pub threads: IntGauge,
    pub start_time: IntGauge,
}

impl ResourceMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        Self {
            cpu_seconds: list.seconds(
                "process_cpu_seconds_total",
                "Seconds of processors that raincheck has used, without those of its server's program.",
            ),
            open_fds: list.gauge("process_open_fds", "Files and connections that are open."),
            max_fds: list.gauge(
                "process_max_fds",
                "The most files and connections that may be open. -1: there is no limit.",
            ),
            virtual_memory: list.gauge(
                "process_virtual_memory_bytes",
                "Bytes of address space that are reserved.",
            ),
            resident_memory: list.gauge(
                "process_resident_memory_bytes",
                "Bytes of memory that are in use.",
            ),
            threads: list.gauge("process_threads", "Threads of the process."),
            start_time: list.gauge(
                "process_start_time_seconds",
                "When the process started, in seconds since 1970.",
            ),
        }
    }
}
