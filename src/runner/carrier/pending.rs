//! What a carrier does later: progress that is not written yet, and the next leg.

use tokio::time::Instant;

use super::super::pauses::Pauses;
use crate::task::state::Progress;

/// The newest progress, committed at most once a poll interval.
#[derive(Default)]
pub(super) struct PendingProgress {
    pub(super) newest: Option<(Option<Box<str>>, Option<Progress>)>,
    /// Not written again before.
    pub(super) not_before: Option<Instant>,
}

/// When the next leg goes of the call of a server that has nothing to ask.
#[derive(Default)]
pub(super) struct NextLeg {
    pub(super) at: Option<Instant>,
    pub(super) pauses: Pauses,
}
