//! Metrics for operators about reloads of the settings.

use super::metrics::METRICS;
use crate::base::clock::{Clock as _, System};
use crate::base::lock::Mutex;

/// What came of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    Changed,
    Unchanged,
    Failed,
}

impl ReloadOutcome {
    const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Failed];

    pub fn word(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

/// The last reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastReload {
    pub at_ms: u64,
    pub outcome: ReloadOutcome,
    /// The mistake of one that failed.
    pub why: Option<String>,
}

static LAST: Mutex<Option<LastReload>> = Mutex::new(None);

/// Counts a reload. `why`: the mistake of one that failed.
pub fn ended(outcome: ReloadOutcome, why: Option<&str>) {
    let reloads = &METRICS.process.reloads;
    reloads.with_label_values(&[outcome.word()]).inc();
    *LAST.lock() = Some(LastReload {
        at_ms: System.now_ms(),
        outcome,
        why: why.map(str::to_owned),
    });
}

/// The last reload since the start, if there was one.
pub fn last() -> Option<LastReload> {
    LAST.lock().clone()
}

/// Shows every outcome from the start, so that an alert sees the first failure.
pub fn begin() {
    for outcome in ReloadOutcome::ALL {
        METRICS.process.reloads.with_label_values(&[outcome.word()]);
    }
}
