//! The events that a subscription receives of a task that was there before it. Pure.

use std::sync::Arc;

use super::EventMark;
use super::position::EventPosition;
use crate::task::notices::{Notices, ReceiverId};

/// The subscriptions of the caller that match a task. Those of `replay` receive its present state, too.
#[derive(Debug, Clone)]
pub struct SubscribedNotices {
    pub wanted: Vec<WantedNotices>,
    pub replay: Replay,
}

/// The notices that one subscription receives of a task: none for an event until `since_ms`.
#[derive(Debug, Clone)]
pub struct WantedNotices {
    pub notices: Notices,
    pub since_ms: u64,
}

/// The subscriptions that receive the events of a task from before it named them.
#[derive(Debug, Clone)]
pub enum Replay {
    /// All: the task is new.
    ToAll,
    To(Arc<ReplayTo>),
}

/// One subscription, and what it asked for.
#[derive(Debug)]
pub struct ReplayTo {
    pub receiver: ReceiverId,
    /// The client received all events before this place.
    pub after: EventPosition,
    /// Earlier events are not sent.
    pub from_ms: u64,
}

impl Replay {
    /// Returns `true` if the subscription receives the event and did not receive it before.
    pub fn has(&self, receiver: ReceiverId, mark: EventMark) -> bool {
        match self {
            Self::ToAll => true,
            Self::To(to) => to.receiver == receiver && to.has(mark),
        }
    }
}

impl ReplayTo {
    pub fn has(&self, mark: EventMark) -> bool {
        mark.at_ms >= self.from_ms && self.after.is_news(mark)
    }
}
