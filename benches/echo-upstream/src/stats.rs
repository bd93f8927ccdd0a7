//! How many requests came, and how many calls run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static ACTIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// Counts a request. The number is different for each.
pub(crate) fn count_request() -> u64 {
    REQUESTS.fetch_add(1, Relaxed)
}

/// A call that runs, from its creation to its drop. A client that leaves drops its call.
#[derive(Debug)]
pub(crate) struct ActiveCall;

impl ActiveCall {
    pub(crate) fn begin() -> Self {
        let active = ACTIVE.fetch_add(1, Relaxed) + 1;
        PEAK.fetch_max(active, Relaxed);
        Self
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        ACTIVE.fetch_sub(1, Relaxed);
    }
}

/// The counts as JSON.
pub(crate) fn to_json() -> String {
    format!(
        r#"{{"requests":{},"active":{},"peak":{}}}"#,
        REQUESTS.load(Relaxed),
        ACTIVE.load(Relaxed),
        PEAK.load(Relaxed)
    )
}
