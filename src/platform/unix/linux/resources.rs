//! The use of the machine's resources by this process, as the kernel counts it.

use std::io;

use procfs::WithCurrentSystemInfo as _;
use procfs::process::{LimitValue, Process};

use crate::platform::resource_use::ResourceUse;

/// `true` if [`read`] returns anything.
pub const ARE_KNOWN: bool = true;

/// Returns what the process uses now.
pub fn read() -> io::Result<ResourceUse> {
    let failed = |error: procfs::ProcError| io::Error::other(error.to_string());
    let process = Process::myself().map_err(failed)?;
    let stat = process.stat().map_err(failed)?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a process that has used 2^53 ticks is older than any machine"
    )]
    let cpu_seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    let since_boot = stat.starttime / procfs::ticks_per_second();
    let limits = process.limits().map_err(failed)?;
    Ok(ResourceUse {
        cpu_seconds,
        virtual_memory: stat.vsize,
        resident_memory: stat.rss_bytes().get(),
        threads: stat.num_threads,
        start_time: procfs::boot_time_secs().map_err(failed)? + since_boot,
        open_files: process.fd_count().map_err(failed)? as u64,
        open_files_max: match limits.max_open_files.soft_limit {
            LimitValue::Value(max) => Some(max),
            LimitValue::Unlimited => None,
        },
    })
}
