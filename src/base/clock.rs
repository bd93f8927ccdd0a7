//! The port to the clock. Tests of deadlines and expiry set the time themselves.
//!
//! Times are Unix milliseconds. Only [`System`] reads the wall clock.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::base::lock::Mutex;

/// Stamps records and decides deadlines and expiry.
pub trait Clock: Debug + Send + Sync {
    /// The time in Unix milliseconds. It may step back when the wall clock is set back: a caller that needs
    /// an order takes the later of this time and the time that it saw before.
    fn now_ms(&self) -> u64;
}

/// Resolves at that time, or never without one. Cancel safe.
pub async fn at(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// The machine's clock, for stores that only one process uses.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Clock for System {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn now_ms(&self) -> u64 {
        // A wall clock before 1970 is taken as 1970.
        millis(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        )
    }
}

/// The clock of another machine, continued by the local monotonic clock. With Redis it follows the time that
/// the last heartbeat returned, so that replicas with wrong wall clocks agree on deadlines.
#[derive(Debug)]
pub struct Anchored {
    anchor: Mutex<(u64, Instant)>,
}

impl Anchored {
    pub fn at(now_ms: u64) -> Self {
        Self {
            anchor: Mutex::new((now_ms, Instant::now())),
        }
    }

    /// Sets the clock to a time that was just received.
    pub fn set(&self, now_ms: u64) {
        *self.anchor.lock() = (now_ms, Instant::now());
    }
}

impl Clock for Anchored {
    fn now_ms(&self) -> u64 {
        // One lock covers both values: the time of one heartbeat with the instant of another would be off by the time
        // between them.
        let (told, at) = *self.anchor.lock();
        told.saturating_add(millis(Instant::now().saturating_duration_since(at)))
    }
}

/// A clock for tests. It stands still until the test changes it.
#[derive(Debug)]
pub struct Manual(AtomicU64);

impl Manual {
    pub fn at(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    pub fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(millis(by), Ordering::SeqCst);
    }
}

impl Clock for Manual {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The machine's clock in Unix nanoseconds, for what is only shown.
#[expect(
    clippy::disallowed_methods,
    reason = "the wall clock is read in this file only"
)]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_clock_stands_still_until_turned() {
        let clock = Manual::at(5);
        assert_eq!(clock.now_ms(), 5);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now_ms(), 1_005);
        clock.set(7);
        assert_eq!(clock.now_ms(), 7);
    }

    #[test]
    fn the_anchored_clock_goes_on_from_what_it_was_told() {
        let clock = Anchored::at(1_000);
        assert!((1_000..60_000).contains(&clock.now_ms()));
        clock.set(1_000_000);
        assert!((1_000_000..1_060_000).contains(&clock.now_ms()));
    }
}
