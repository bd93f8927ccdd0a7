//! The requests that raincheck sends over a client's own line, and what the server says about each.

use tokio::sync::mpsc;

use crate::mcp::input::InputKind;
use crate::upstream::port::{Event, Question};
use crate::upstream::reader_queue::{Full, OWN_PATIENCE, ReaderQueue};
use crate::upstream::request_id::RequestId;
use serde_json::value::RawValue;

/// Notifications and questions that wait for the reader of one request; the answer has a place of its own.
const EVENTS_MAX: usize = 16;

/// A request of raincheck's, ready to be sent over a client's own line.
pub(in crate::upstream) struct BorrowedRequest {
    pub(in crate::upstream) id: RequestId,
    pub(in crate::upstream) text: String,
    pub(in crate::upstream) may_ask: bool,
}

/// Takes what the server says about one borrowed request, for the call that reads it.
pub(in crate::upstream) struct BorrowedResponder {
    events: ReaderQueue<Event>,
    answer: mpsc::OwnedPermit<Event>,
}

impl BorrowedResponder {
    pub(in crate::upstream) fn new() -> Option<(Self, mpsc::Receiver<Event>)> {
        let (events, receiver) = mpsc::channel(EVENTS_MAX + 1);
        // The place of the answer is taken now, so that the end of the call never waits for its reader.
        let answer = events.clone().try_reserve_owned().ok()?;
        let events = ReaderQueue::new(events, OWN_PATIENCE);
        Some((Self { events, answer }, receiver))
    }

    /// Returns `true` if the call still reads.
    pub(in crate::upstream) fn is_taken(&self) -> bool {
        !self.events.is_closed()
    }

    /// Hands over the last event. Nothing follows it.
    pub(in crate::upstream) fn end(self, event: Event) {
        self.answer.send(event);
    }

    /// Hands over a question or a progress notification. False for any other message, and when the reader is
    /// slow.
    pub(in crate::upstream) fn say(&self, stray: StrayMessage<'_>) -> bool {
        let StrayMessage {
            id, method, params, ..
        } = stray;
        let event = match (id, params) {
            (Some(id), params) if InputKind::of(method).is_some() => Event::Question(Question {
                id: id.into(),
                method: method.into(),
                params: params.map(ToOwned::to_owned),
            }),
            (None, Some(params)) if method == "notifications/progress" => {
                Event::Progress(params.to_owned())
            }
            _ => return false,
        };
        self.events.put(event)
    }

    /// Returns the wait for the reader, if its queue is full.
    pub(in crate::upstream) fn full(&self) -> Option<Full> {
        self.events.full()
    }
}

/// A message of the server that is no answer to a request.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct StrayMessage<'a> {
    /// The id of the server's request. `None` for a notification.
    pub(in crate::upstream) id: Option<&'a str>,
    pub(in crate::upstream) method: &'a str,
    pub(in crate::upstream) params: Option<&'a RawValue>,
    /// The whole message.
    pub(in crate::upstream) text: &'a str,
}
