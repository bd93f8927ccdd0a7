//! What is said to one call, on its own stream and on the session's, as one stream.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::port::Event;
use super::side::Current;
use crate::mcp::error::{Failure, Reason, SideEffect};

/// All that is said to a call: on its own stream, and beside it on the session's.
pub(super) struct Both {
    pub(super) on_stream: BoxStream<'static, Event>,
    pub(super) said_beside: mpsc::Receiver<Event>,
    pub(super) current: Current,
    /// When a server that may lose answers was given the last one.
    pub(super) answered: watch::Receiver<Option<Instant>>,
    /// How long it may then be silent.
    pub(super) patience: Option<Duration>,
    pub(super) silent_since: Option<Instant>,
    /// When the client whose session it is ends it.
    pub(super) ended: CancellationToken,
    pub(super) is_over: bool,
}

impl Both {
    pub(super) async fn next(&mut self) -> Option<Event> {
        while !self.is_over {
            let lost_at = self.silent_since.zip(self.patience);
            // None loses anything when another wins: the conversation waits inside of its stream.
            let event = tokio::select! {
                biased;
                Some(event) = self.said_beside.recv() => event,
                event = self.on_stream.next() => {
                    self.silent_since = None;
                    self.is_over = event.is_none();
                    return event;
                }
                Ok(()) = self.answered.changed() => {
                    self.silent_since = *self.answered.borrow_and_update();
                    continue;
                }
                () = at(lost_at.map(|(since, patience)| since + patience)) => {
                    Event::Failed(Failure::new(Reason::AnswerLost, SideEffect::Unknown))
                }
                () = self.ended.cancelled() => {
                    Event::Failed(Failure::new(Reason::UpstreamReset, SideEffect::Unknown))
                }
            };
            self.silent_since = None;
            if let Event::Result(_) | Event::Error(_) | Event::Failed(_) = event {
                self.is_over = true;
                *self.current.lock() = None;
                // With it the session is given up, and its stream has no call to speak of any more.
                self.on_stream = stream::empty().boxed();
            }
            return Some(event);
        }
        None
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
