//! Metrics for operators about reloads of the settings.

use super::metrics::METRICS;

/// What came of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    Changed,
    Unchanged,
    Failed,
}

impl ReloadOutcome {
    const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Failed];

    fn word(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

/// Counts a reload.
pub fn ended(outcome: ReloadOutcome) {
    let reloads = &METRICS.process.reloads;
    reloads.with_label_values(&[outcome.word()]).inc();
}

/// Shows every outcome from the start, so that an alert sees the first failure.
pub fn begin() {
    for outcome in ReloadOutcome::ALL {
        METRICS.process.reloads.with_label_values(&[outcome.word()]);
    }
}
