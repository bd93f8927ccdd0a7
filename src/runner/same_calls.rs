//! The calls of modern clients that run in this process, by client, tool and arguments.
//!
//! A program whose clock has ended makes the same call again within a millisecond, over another connection. The new call may
//! be read before the end of the old connection is noticed; it waits a moment for that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::lock::Mutex;
use crate::task::gave_up::is_time_of_clock;

/// Upper bound of the time by which the end of a connection is noticed later than a request that was sent after it.
const END_FOLLOWS: Duration = Duration::from_millis(50);

/// The calls that run in this process.
#[derive(Debug, Default)]
pub struct SameCalls {
    /// Random in each process, so that a client cannot choose calls whose keys collide.
    hash: RandomState,
    running: Mutex<HashMap<u64, Running, RandomState>>,
    left: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    count: usize,
    /// When the last of them began.
    began: Instant,
}

/// One call in the table. Dropped, the call leaves it.
#[derive(Debug)]
pub struct RunningCall {
    calls: Arc<SameCalls>,
    key: u64,
}

impl SameCalls {
    /// Returns the key of a call. Two calls of one key are nearly always the same: a mistake costs a short wait.
    pub fn key(&self, whose: &[u8; 16], tool: &str, arguments: &str) -> u64 {
        self.hash.hash_one((whose, tool, arguments))
    }

    /// Returns `true` if a call of this key runs, and its client's clock may just have ended. `at_any_time`: its client says so
    /// with a reason, whenever that is.
    pub fn may_be_given_up(&self, key: u64, at_any_time: bool) -> bool {
        let running = self.running.lock().get(&key).copied();
        running.is_some_and(|running| {
            let waited = Instant::now().saturating_duration_since(running.began);
            at_any_time
                || is_time_of_clock(waited)
                || is_time_of_clock(waited.saturating_sub(END_FOLLOWS))
        })
    }

    /// Waits until no such call runs, or for a moment.
    pub async fn settled(&self, key: u64) {
        let settled = async {
            loop {
                // Before the look, so that no notification is missed.
                let left = self.left.notified();
                if !self.running.lock().contains_key(&key) {
                    return;
                }
                left.await;
            }
        };
        let _ = timeout(END_FOLLOWS, settled).await;
    }

    /// Enters a call that begins now.
    pub fn enter(self: &Arc<Self>, key: u64) -> RunningCall {
        let began = Instant::now();
        let mut running = self.running.lock();
        let count = running.get(&key).map_or(0, |running| running.count) + 1;
        running.insert(key, Running { count, began });
        drop(running);
        let calls = Arc::clone(self);
        RunningCall { calls, key }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut all = self.calls.running.lock();
        if let Entry::Occupied(mut running) = all.entry(self.key) {
            running.get_mut().count -= 1;
            if running.get().count == 0 {
                running.remove();
                // Unlocked first, because those that wait take this lock as soon as they are notified.
                drop(all);
                self.calls.left.notify_waiters();
            }
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
