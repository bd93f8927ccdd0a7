//! The use of the machine's resources by this process, as the kernel counts it.

use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, WithCurrentSystemInfo as _};
use tracing::debug;

use super::metrics::METRICS;

/// Writes what the process uses now into the metrics. Called for each scrape.
pub fn measure() {
    if let Err(error) = read() {
        debug!(%error, "what the process uses cannot be read");
    }
}

fn read() -> ProcResult<()> {
    let metrics = &METRICS.resources;
    let process = Process::myself()?;
    let stat = process.stat()?;
    let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a process that has used 2^53 ticks is older than any machine"
    )]
    let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    // Two scrapes at the same time may count in another order than they read.
    metrics
        .cpu_seconds
        .inc_by((seconds - metrics.cpu_seconds.get()).max(0.0));
    metrics.virtual_memory.set(gauge(stat.vsize));
    metrics.resident_memory.set(gauge(stat.rss_bytes().get()));
    metrics.threads.set(stat.num_threads);
    let since_boot = stat.starttime / procfs::ticks_per_second();
    metrics
        .start_time
        .set(gauge(procfs::boot_time_secs()? + since_boot));
    metrics.open_fds.set(gauge(process.fd_count()? as u64));
    let max = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Value(max) => gauge(max),
        LimitValue::Unlimited => -1,
    };
    metrics.max_fds.set(max);
    Ok(())
}
