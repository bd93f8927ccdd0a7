//! State that the event requests of a process share: permits for streams, and turns for looks.

use std::sync::Arc;
use std::time::Duration;

use crate::notify::callbacks::Callbacks;
use crate::sharing::resizable::{ResizablePermit, ResizableSemaphore};
use crate::sharing::shares::{Share, Shares};
use crate::sharing::turns::{Turn, Turns};
use crate::store::key_value::KeyValue;
use crate::store::subscriptions::SubscriptionStore;
use crate::task::digest::Digest;
use crate::task::id::Caller;

/// The most event streams of one caller, and of this process.
pub(super) const STREAMS_OF_CALLER: usize = 64;
const STREAMS: usize = 1024;

/// The most looks of one caller at the same time, and of this process. A look may read many records, and further looks wait
/// for their turn.
pub(super) const LOOKS_OF_CALLER: usize = 2;
const LOOKS: usize = 8;

/// The most challenges to receivers at the same time: for one caller, to one host, and of this process.
pub(super) const CHALLENGES_OF_CALLER: usize = 2;
const CHALLENGES_OF_HOST: usize = 16;
const CHALLENGES: usize = 64;

/// The time that a look, or a challenge, waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// Upper bound of the difference between the clocks of replicas, and of the time that a commit is under way.
const SKEW: Duration = Duration::from_secs(5);

/// State that the events of this process share. It exists where `events.enabled` is set.
#[derive(Debug)]
pub struct Events {
    streams_of_caller: Arc<Shares>,
    streams: Arc<ResizableSemaphore>,
    looks: Turns,
    late_ms: u64,
    /// `None`: clients cannot subscribe.
    pub(super) webhooks: Option<EventWebhooks>,
}

/// The state that is needed to keep the webhook subscriptions of clients.
#[derive(Debug)]
pub struct EventWebhooks {
    pub(super) callbacks: Callbacks,
    pub(super) store: SubscriptionStore,
    challenges: Turns,
    /// The challenges to one host, by a digest of its name.
    of_host: Arc<Shares>,
}

/// The turn of one challenge. Dropping it ends it.
#[derive(Debug)]
pub(super) struct ChallengeTurn {
    _of_host: Share,
    _turn: Turn,
}

impl EventWebhooks {
    pub fn new(callbacks: Callbacks, kv: &KeyValue) -> Self {
        Self {
            callbacks,
            store: SubscriptionStore::new(kv.clone()),
            challenges: Turns::new(CHALLENGES_OF_CALLER, CHALLENGES),
            of_host: Shares::new(CHALLENGES_OF_HOST),
        }
    }

    /// Waits until the caller may have this host challenged. `None`: no turn became free in time.
    pub(super) async fn challenge_turn(&self, caller: Caller, host: &str) -> Option<ChallengeTurn> {
        let turn = self.challenges.take(caller, TURN_PATIENCE).await?;
        // Another spelling of the same host must not get further places.
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let host = Caller::from_bytes(*Digest::of(&["host", &host]).as_bytes());
        Some(ChallengeTurn {
            // Not awaited: this challenge holds a place of its caller and of the process already.
            _of_host: self.of_host.take(host, 1)?,
            _turn: turn,
        })
    }
}

/// Which clients raincheck offers its event to.
#[derive(Debug, Clone, Copy)]
pub(in crate::downstream) enum EventsFor<'k> {
    /// No client: events are switched off.
    Nobody,
    /// Other clients: this one does not identify itself.
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

impl Events {
    /// `patience`: how long a replica tries to commit while the store is away.
    pub fn new(patience: Duration, webhooks: Option<EventWebhooks>) -> Self {
        let late_ms = patience.saturating_add(SKEW).as_millis();
        Self {
            streams_of_caller: Shares::new(STREAMS_OF_CALLER),
            streams: ResizableSemaphore::new(STREAMS),
            looks: Turns::new(LOOKS_OF_CALLER, LOOKS),
            late_ms: u64::try_from(late_ms).unwrap_or(u64::MAX),
            webhooks,
        }
    }

    /// The time until which every commit is visible at `now_ms`: a commit shows up some time after the time that it carries.
    pub(super) fn visible_until(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.late_ms)
    }

    /// `None`: the caller, or all callers together, have as many streams as they may.
    pub(super) fn stream_permit(&self, caller: Caller) -> Option<StreamPermit> {
        Some(StreamPermit {
            // Taken first, so that a caller without a place of its own takes none of the process.
            _of_caller: self.streams_of_caller.take(caller, 1)?,
            _of_process: self.streams.try_take().ok()?,
        })
    }

    /// Waits until the caller may look. `None`: no turn became free in time.
    pub(super) async fn look_turn(&self, caller: Caller) -> Option<Turn> {
        self.looks.take(caller, TURN_PATIENCE).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_immediate;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_caller_has_two_turns_and_leaves_the_others_theirs() {
        let events = Events::new(Duration::from_secs(5), None);
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
        let events = Events::new(Duration::from_mins(1), None);
        assert_eq!(events.visible_until(100_000), 35_000);
        let endless = Events::new(Duration::MAX, None);
        assert_eq!(endless.visible_until(100_000), 0);
    }
}
