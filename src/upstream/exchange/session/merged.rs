//! The events of one call, from its own stream and from the session's, as one stream.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::base::clock::at;
use crate::base::unfold::Unfold;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::exchange::session::control::CurrentCall;
use crate::upstream::failures::RESET;
use crate::upstream::port::Event;

pub(super) struct MergedEvents {
    pub(super) on_stream: BoxStream<'static, Event>,
    /// The messages of the session's stream for the call.
    pub(super) beside: mpsc::Receiver<Event>,
    pub(super) underway: CurrentCall,
    /// When the last answer was sent to a server that may lose answers.
    pub(super) answered: watch::Receiver<Option<Instant>>,
    /// The time for which such a server may be silent after the answer.
    pub(super) patience: Option<Duration>,
    pub(super) silent_since: Option<Instant>,
    /// Cancelled when the client whose session it is ends it.
    pub(super) ended: CancellationToken,
    pub(super) is_over: bool,
}

impl Unfold for MergedEvents {
    type Item = Event;

    async fn next(&mut self) -> Option<Event> {
        while !self.is_over {
            let lost_at = self.silent_since.zip(self.patience);
            // No branch loses an event when another branch wins: `on_stream` keeps its pending future.
            let event = tokio::select! {
                // Biased, because nothing is read after the answer: events that came beside it go first.
                biased;
                Some(event) = self.beside.recv() => event,
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
                () = self.ended.cancelled() => Event::Failed(RESET),
            };
            self.silent_since = None;
            if event.is_last() {
                self.is_over = true;
                *self.underway.lock() = None;
                // Drops the call, and with it its session: another call must not meet what it left.
                self.on_stream = stream::empty().boxed();
            }
            return Some(event);
        }
        None
    }
}
