//! What the event requests of a process share: permits for streams, and turns for looks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::resizable::{ResizablePermit, ResizableSemaphore};
use crate::shares::{Share, Shares};
use crate::task::id::Caller;

/// The most event streams of one caller, and of this process.
pub(super) const STREAMS_OF_CALLER: usize = 64;
const STREAMS: usize = 1024;

/// The most looks of one caller at the same time, and of this process. A look may read many records, and further looks wait
/// for their turn.
pub(super) const LOOKS_OF_CALLER: usize = 2;
const LOOKS: usize = 8;

/// How long a look waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// What the clocks of replicas differ by, and how long a commit is under way, at the most.
const SKEW: Duration = Duration::from_secs(5);

/// What the events of this process share. It exists where `events.enabled` is set.
#[derive(Debug)]
pub struct Events {
    streams_of_caller: Arc<Shares>,
    streams: Arc<ResizableSemaphore>,
    looks_of_caller: Arc<Shares>,
    looks: Arc<ResizableSemaphore>,
    /// Wakes the looks that wait for another look of their caller.
    look_ended: Arc<Notify>,
    late_ms: u64,
}

/// Which clients raincheck offers its event to.
#[derive(Debug, Clone, Copy)]
pub(in crate::downstream) enum EventsFor<'k> {
    /// No client: events are switched off.
    Nobody,
    /// Other clients: this one does not say who it is.
    Others,
    ThisClient(&'k Arc<Events>),
}

/// When a client asks, by the clock of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct AskedAt {
    pub(super) now_ms: u64,
    /// The time until which every commit is visible.
    pub(super) visible_ms: u64,
}

/// The permit of one event stream. Dropping it returns it.
#[derive(Debug)]
pub(super) struct StreamPermit {
    _of_caller: Share,
    _of_process: ResizablePermit,
}

/// The turn of one look. Dropping it ends it.
#[derive(Debug)]
pub(super) struct LookTurn {
    _of_process: ResizablePermit,
    _of_caller: CallersTurn,
}

/// The share is returned before the others are woken: fields drop in their order.
#[derive(Debug)]
struct CallersTurn {
    _share: Share,
    _wakes: WakesOnDrop,
}

#[derive(Debug)]
struct WakesOnDrop(Arc<Notify>);

impl Drop for WakesOnDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Events {
    /// `patience`: how long a replica tries to commit while the store is away.
    pub fn new(patience: Duration) -> Self {
        let late_ms = patience.saturating_add(SKEW).as_millis();
        Self {
            streams_of_caller: Shares::new(STREAMS_OF_CALLER),
            streams: ResizableSemaphore::new(STREAMS),
            looks_of_caller: Shares::new(LOOKS_OF_CALLER),
            looks: ResizableSemaphore::new(LOOKS),
            look_ended: Arc::default(),
            late_ms: u64::try_from(late_ms).unwrap_or(u64::MAX),
        }
    }

    /// The time until which every commit is visible at `now_ms`: a commit shows up some time after the time that it carries.
    pub(super) fn visible_until(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.late_ms)
    }

    /// `None`: the caller, or all callers together, have as many streams as they may.
    pub(super) fn stream_permit(&self, caller: Caller) -> Option<StreamPermit> {
        Some(StreamPermit {
            _of_caller: self.streams_of_caller.take(caller, 1)?,
            _of_process: self.streams.try_take().ok()?,
        })
    }

    /// Waits until the caller may look. `None`: no turn became free in time.
    pub(super) async fn look_turn(&self, caller: Caller) -> Option<LookTurn> {
        let turn = async {
            let of_caller = self.callers_turn(caller).await;
            Some(LookTurn {
                _of_process: Arc::clone(&self.looks).take().await.ok()?,
                _of_caller: of_caller,
            })
        };
        timeout(TURN_PATIENCE, turn).await.ok().flatten()
    }

    async fn callers_turn(&self, caller: Caller) -> CallersTurn {
        loop {
            // Made before the share is asked for, so that no end of a look falls in between.
            let ended = self.look_ended.notified();
            if let Some(share) = self.looks_of_caller.take(caller, 1) {
                return CallersTurn {
                    _share: share,
                    _wakes: WakesOnDrop(Arc::clone(&self.look_ended)),
                };
            }
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_immediate;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_caller_has_two_turns_and_leaves_the_others_theirs() {
        let events = Events::new(Duration::from_secs(5));
        let [alice, bob] = [1, 2].map(|byte| Caller::from_bytes([byte; 16]));
        let first = events.look_turn(alice).await.unwrap();
        let second = events.look_turn(alice).await.unwrap();
        let third = events.look_turn(alice);
        tokio::pin!(third);
        assert!(poll_immediate(&mut third).await.is_none());
        assert!(events.look_turn(bob).await.is_some());
        drop(first);
        assert!(third.await.is_some());
        let fourth = events.look_turn(alice).await;
        assert!(fourth.is_some() && events.look_turn(alice).await.is_none());
        drop((second, fourth));
        assert!(events.look_turn(alice).await.is_some());
    }

    #[test]
    fn a_commit_is_late_by_the_patience_with_the_store() {
        let events = Events::new(Duration::from_mins(1));
        assert_eq!(events.visible_until(100_000), 35_000);
        let endless = Events::new(Duration::MAX);
        assert_eq!(endless.visible_until(100_000), 0);
    }
}
