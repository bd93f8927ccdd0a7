//! Where a request of ours on a client's own line hears what is said about it.

use tokio::sync::mpsc;

use crate::mcp::input::Kind;
use crate::upstream::port::{Event, Question};
use crate::upstream::request_id::RequestId;
use serde_json::value::RawValue;

/// Notifications and questions that wait for the caller of the request; the answer has a place of
/// its own. More are dropped: one reader serves all requests and must not wait for one of them.
const EVENTS_MAX: usize = 16;

/// Such a request, ready to be sent.
pub(in crate::upstream) struct BorrowedRequest {
    pub(in crate::upstream) id: RequestId,
    pub(in crate::upstream) text: String,
    pub(in crate::upstream) may_ask: bool,
}

/// Where it hears what is said about it.
pub(in crate::upstream) struct BorrowedResponder {
    events: mpsc::Sender<Event>,
    answer: mpsc::OwnedPermit<Event>,
}

impl BorrowedResponder {
    pub(in crate::upstream) fn new() -> Option<(Self, mpsc::Receiver<Event>)> {
        let (events, receiver) = mpsc::channel(EVENTS_MAX + 1);
        let answer = events.clone().try_reserve_owned().ok()?;
        Some((Self { events, answer }, receiver))
    }

    /// Whether somebody waits for it.
    pub(in crate::upstream) fn is_taken(&self) -> bool {
        !self.events.is_closed()
    }

    /// Its end.
    pub(in crate::upstream) fn end(self, event: Event) {
        self.answer.send(event);
    }

    /// A question, or progress. False where it is neither, or its reader is slow.
    pub(in crate::upstream) fn say(&self, stray: StrayMessage<'_>) -> bool {
        let StrayMessage {
            id, method, params, ..
        } = stray;
        let event = match (id, params) {
            (Some(id), params) if Kind::of(method).is_some() => Event::Question(Question {
                id: id.into(),
                method: method.into(),
                params: params.map(ToOwned::to_owned),
            }),
            (None, Some(params)) if method == "notifications/progress" => {
                Event::Progress(params.to_owned())
            }
            _ => return false,
        };
        self.events.try_send(event).is_ok()
    }
}

/// A message that answers nothing.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct StrayMessage<'a> {
    /// Of a request.
    pub(in crate::upstream) id: Option<&'a str>,
    pub(in crate::upstream) method: &'a str,
    pub(in crate::upstream) params: Option<&'a RawValue>,
    /// The whole message.
    pub(in crate::upstream) text: &'a str,
}
