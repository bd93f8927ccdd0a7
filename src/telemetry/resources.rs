//! The figures of the operating system for this process, as far as it has any.

use tracing::debug;

use super::metrics::METRICS;
use crate::platform::resources;

/// Writes what the process uses now into the metrics. Called for each scrape.
pub fn measure() {
    let Some(metrics) = &METRICS.resources else {
        return;
    };
    let used = match resources::read() {
        Ok(used) => used,
        Err(error) => return debug!(%error, "what the process uses cannot be read"),
    };
    let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    // Two scrapes at the same time may count in another order than they read.
    metrics
        .cpu_seconds
        .inc_by((used.cpu_seconds - metrics.cpu_seconds.get()).max(0.0));
    metrics.virtual_memory.set(gauge(used.virtual_memory));
    metrics.resident_memory.set(gauge(used.resident_memory));
    metrics.threads.set(used.threads);
    metrics.start_time.set(gauge(used.start_time));
    metrics.open_fds.set(gauge(used.open_files));
    metrics.max_fds.set(used.open_files_max.map_or(-1, gauge));
}
