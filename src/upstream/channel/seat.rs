//! Where a request of ours on a client's own line hears what is said about it.

use tokio::sync::mpsc;

use super::super::port::{Event, Question};
use crate::mcp::input::Kind;
use crate::upstream::request_id::RequestId;
use serde_json::value::RawValue;

/// Notifications and questions that wait for whoever made the request; the answer has a place of
/// its own. More are dropped: one reader serves all requests and must not wait for one of them.
const EVENTS_MAX: usize = 16;

/// Such a request, ready to be sent.
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) text: String,
    pub(super) may_ask: bool,
}

/// Where it hears what is said about it.
pub(super) struct Seat {
    events: mpsc::Sender<Event>,
    answer: mpsc::OwnedPermit<Event>,
}

impl Seat {
    pub(super) fn new() -> Option<(Self, mpsc::Receiver<Event>)> {
        let (events, receiver) = mpsc::channel(EVENTS_MAX + 1);
        let answer = events.clone().try_reserve_owned().ok()?;
        Some((Self { events, answer }, receiver))
    }

    /// Whether somebody waits for it.
    pub(super) fn is_taken(&self) -> bool {
        !self.events.is_closed()
    }

    /// Its end.
    pub(super) fn end(self, event: Event) {
        self.answer.send(event);
    }

    /// A question, or progress. False where it is neither, or its reader is slow.
    pub(super) fn say(&self, stray: Stray<'_>) -> bool {
        let Stray {
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
pub(super) struct Stray<'a> {
    /// Of a request.
    pub(super) id: Option<&'a str>,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
    /// The whole message.
    pub(super) text: &'a str,
}
