//! The calls of modern clients that run in this process, by client, tool and arguments.
//!
//! A program whose clock has ended makes the same call again within a millisecond, over another connection. The new call may
//! be read before the end of the old connection is noticed; it waits a moment for that.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::task::gave_up::is_time_of_clock;

/// Upper bound of the time by which the end of a connection is noticed later than a request that was sent after it.
const END_FOLLOWS: Duration = Duration::from_millis(50);

/// The number of places. Calls that share a place count as the same call, which costs one of them [`END_FOLLOWS`] at most, and
/// only at a time of a clock.
const PLACES: u64 = 32_768;

/// The calls that run in this process.
#[derive(Debug)]
pub struct SameCalls {
    /// Random in each process, so that a client cannot choose calls that share a place.
    hash: RandomState,
    /// The time from which [`Place::began_ms`] counts.
    epoch: Instant,
    places: Box<[Place]>,
    left: Notify,
}

/// The running calls of one place.
#[derive(Debug, Default)]
struct Place {
    count: AtomicU32,
    /// When the first of them began: short calls that share the place do not hide a long one. It wraps around after 49 days.
    began_ms: AtomicU32,
}

/// The place of a call in the table.
#[derive(Debug, Clone, Copy)]
pub struct CallKey(usize);

/// One call in the table. Dropped with all its clones, the call leaves it.
#[derive(Debug)]
pub struct RunningCall {
    calls: Arc<SameCalls>,
    key: CallKey,
}

impl Default for SameCalls {
    fn default() -> Self {
        Self {
            hash: RandomState::default(),
            epoch: Instant::now(),
            places: (0..PLACES).map(|_| Place::default()).collect(),
            left: Notify::new(),
        }
    }
}

impl SameCalls {
    /// Returns the key of a call. Two calls of one key are nearly always the same: a mistake costs a short wait.
    pub fn key(&self, whose: &[u8; 16], tool: &str, arguments: &str) -> CallKey {
        let hash = self.hash.hash_one((whose, tool, arguments));
        CallKey(usize::try_from(hash % PLACES).unwrap_or_default())
    }

    /// Returns `true` if a call of this key runs, and its client's clock may just have ended. `at_any_time`: its client says so
    /// with a reason, whenever that is.
    pub fn may_be_given_up(&self, key: CallKey, at_any_time: bool) -> bool {
        let place = self.place(key);
        if place.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let waited = self
            .now_ms()
            .wrapping_sub(place.began_ms.load(Ordering::Relaxed));
        let waited = Duration::from_millis(waited.into());
        at_any_time
            || is_time_of_clock(waited)
            || is_time_of_clock(waited.saturating_sub(END_FOLLOWS))
    }

    /// Waits until no such call runs, or for a moment.
    pub async fn settled(&self, key: CallKey) {
        let settled = async {
            loop {
                // Before the look, so that no notification is missed.
                let left = self.left.notified();
                if self.place(key).count.load(Ordering::Acquire) == 0 {
                    return;
                }
                left.await;
            }
        };
        let _ = timeout(END_FOLLOWS, settled).await;
    }

    /// Enters a call that begins now.
    pub fn enter(self: &Arc<Self>, key: CallKey) -> RunningCall {
        let place = self.place(key);
        if place.count.fetch_add(1, Ordering::AcqRel) == 0 {
            place.began_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        RunningCall {
            calls: Arc::clone(self),
            key,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a key is below the number of places"
    )]
    fn place(&self, key: CallKey) -> &Place {
        &self.places[key.0]
    }

    #[expect(clippy::cast_possible_truncation, reason = "it wraps around")]
    fn now_ms(&self) -> u32 {
        (Instant::now() - self.epoch).as_millis() as u32
    }
}

impl Clone for RunningCall {
    fn clone(&self) -> Self {
        let calls = Arc::clone(&self.calls);
        calls.place(self.key).count.fetch_add(1, Ordering::Relaxed);
        Self { calls, ..*self }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let place = self.calls.place(self.key);
        if place.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.calls.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_call_waits_for_the_end_of_one_whose_clock_may_have_ended() {
        let calls = Arc::new(SameCalls::default());
        let key = calls.key(&[1; 16], "t", "{}");
        let other = calls.key(&[2; 16], "t", "{}");
        let began = Instant::now();
        let running = calls.enter(key);
        assert!(!calls.may_be_given_up(key, false));
        tokio::time::advance(Duration::from_millis(1_020)).await;
        assert!(calls.may_be_given_up(key, false) && !calls.may_be_given_up(other, false));
        let leaving = async {
            tokio::task::yield_now().await;
            drop(running);
        };
        tokio::join!(calls.settled(key), leaving);
        assert_eq!(Instant::now() - began, Duration::from_millis(1_020));
        assert!(!calls.may_be_given_up(key, false));
        // A call that goes on delays another one for a moment only.
        let _running = calls.enter(key);
        calls.settled(key).await;
        assert_eq!(Instant::now() - began, Duration::from_millis(1_070));
    }
}
