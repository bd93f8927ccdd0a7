//! What processes use, from `/proc`.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

const LOOK: Duration = Duration::from_millis(200);

/// CPU time and resident memory of processes and their children.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) user_ms: u64,
    pub(crate) system_ms: u64,
    pub(crate) rss_kib: u64,
}

impl Usage {
    pub(crate) fn of(pids: &[u32]) -> Self {
        let mut all = Self::default();
        for pid in with_children(pids) {
            if let Some((user, system)) = cpu_ticks(pid) {
                all.user_ms += to_ms(user);
                all.system_ms += to_ms(system);
            }
            all.rss_kib += rss_kib(pid).unwrap_or_default();
        }
        all
    }

    /// The CPU time since then. The memory is that of now.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            user_ms: self.user_ms.saturating_sub(before.user_ms),
            system_ms: self.system_ms.saturating_sub(before.system_ms),
            rss_kib: self.rss_kib,
        }
    }

    pub(crate) fn cpu_ms(&self) -> u64 {
        self.user_ms + self.system_ms
    }
}

/// Looks at the memory of processes again and again, on a thread of its own.
#[derive(Debug)]
pub(crate) struct PeakMemory {
    is_over: Arc<AtomicBool>,
    watching: Option<JoinHandle<u64>>,
}

impl PeakMemory {
    pub(crate) fn watch(pids: Vec<u32>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let watching = (!pids.is_empty()).then(|| thread::spawn(move || watch(&pids, &ends)));
        Self { is_over, watching }
    }

    /// The most that was seen, in KiB.
    pub(crate) fn end(mut self) -> u64 {
        self.is_over.store(true, Relaxed);
        let watching = self.watching.take();
        watching.map_or(0, |it| it.join().unwrap_or_default())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own sleeps; nothing else runs on it"
)]
fn watch(pids: &[u32], is_over: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !is_over.load(Relaxed) {
        peak = peak.max(Usage::of(pids).rss_kib);
        thread::sleep(LOOK);
    }
    peak
}

/// The processes and all their descendants.
fn with_children(pids: &[u32]) -> Vec<u32> {
    let mut all = pids.to_vec();
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        for child in children(*pid) {
            if !all.contains(&child) {
                all.push(child);
            }
        }
        next += 1;
    }
    all
}

/// A process's children are listed by the thread that started them.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

fn cpu_ticks(pid: u32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may hold spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user = fields.next()?.parse().ok()?;
    Some((user, fields.next()?.parse().ok()?))
}

fn to_ms(ticks: u64) -> u64 {
    ticks * 1000 / clock_ticks_per_second().max(1)
}

fn rss_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
