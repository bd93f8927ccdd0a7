//! What a subscription hears of a task that was there before it. Pure.

use std::sync::Arc;

use super::EventMark;
use super::position::EventPosition;
use crate::task::notices::{Notices, ReceiverId};

/// The subscriptions of the caller that want to hear of a task. Those of `replay` hear of its present state, too.
#[derive(Debug, Clone)]
pub struct SubscribedNotices {
    pub wanted: Vec<WantedNotices>,
    pub replay: Replay,
}

/// What one subscription wants to hear of a task: nothing that happened until `since_ms`.
#[derive(Debug, Clone)]
pub struct WantedNotices {
    pub notices: Notices,
    pub since_ms: u64,
}

/// Which subscriptions hear of what happened to a task before it named them.
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
    /// The client was told of what lies before.
    pub after: EventPosition,
    /// What happened earlier is not told.
    pub from_ms: u64,
}

impl Replay {
    /// Whether the subscription hears of the event, as far as it was not told of it.
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
