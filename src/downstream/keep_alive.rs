//! The beat of a stream on which nothing is said.

use std::time::Duration;

use tokio::time::{Instant, Interval};

/// Between comments on a quiet stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn keep_alive() -> Interval {
    let mut beat = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    beat
}
