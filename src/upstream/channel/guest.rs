//! A request of raincheck's own on a legacy client's session over a line, beside the client's.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::running::Stray;
use super::session::{Session, Untaken};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::input::Kind;
use crate::mcp::json::Writer;
use crate::upstream::legacy::{may_ask, response};
use crate::upstream::modern::CANCEL_PATIENCE;
use crate::upstream::request_id::RequestId;
use crate::upstream::{Answer, Control, Event, Exchange, Outgoing, Question, translate};

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

/// Begins one request; it is sent when the events are first polled.
pub(super) fn begin(session: Arc<Session>, outgoing: Outgoing) -> Exchange {
    let current = Current::default();
    let control = Side {
        session: Arc::clone(&session),
        current: Arc::clone(&current),
    };
    let conversation = Conversation {
        session,
        outgoing,
        current,
        phase: Phase::Unsent,
    };
    let events = stream::unfold(conversation, |mut conversation| async {
        let event = conversation.next().await?;
        Some((event, conversation))
    });
    Exchange {
        events: events.boxed(),
        control: Arc::new(control),
    }
}

/// The request's id, while it is under way.
type Current = Arc<Mutex<Option<RequestId>>>;

struct Conversation {
    session: Arc<Session>,
    outgoing: Outgoing,
    current: Current,
    phase: Phase,
}

enum Phase {
    Unsent,
    Reading(mpsc::Receiver<Event>),
    Over,
}

impl Conversation {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match &mut self.phase {
                Phase::Over => return None,
                Phase::Unsent => match self.send().await {
                    Ok(events) => {
                        self.phase = Phase::Reading(events);
                        return Some(Event::Sent);
                    }
                    Err(failure) => Event::Failed(failure),
                },
                Phase::Reading(events) => events.recv().await.unwrap_or(Event::Failed(RESET)),
            };
            match event {
                Event::Progress(_) if !self.outgoing.wants_progress => {}
                Event::Result(_) | Event::Error(_) | Event::Failed(_) => {
                    self.phase = Phase::Over;
                    *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    return Some(event);
                }
                Event::Sent
                | Event::Progress(_)
                | Event::Log(_)
                | Event::Question(_)
                | Event::Resumable
                | Event::Later(_) => return Some(event),
            }
        }
    }

    async fn send(&self) -> Result<mpsc::Receiver<Event>, Failure> {
        let failed = |reason| Failure::new(reason, SideEffect::None);
        let id = RequestId::random();
        let params = translate::for_legacy(&self.outgoing, &id);
        let params = params.map_err(|_| failed(Reason::UpstreamInvalid))?;
        let method = &self.outgoing.method;
        let request = Request {
            text: translate::request(&id, method, &params),
            may_ask: may_ask(method),
            id: id.clone(),
        };
        let carried = self.session.carry(request).await;
        let events = carried.map_err(|untaken| match untaken {
            Untaken::Over => failed(Reason::UpstreamReset),
            Untaken::Busy | Untaken::SameId => failed(Reason::UpstreamUnreachable),
        })?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        Ok(events)
    }
}

/// The way back to the session while the request is under way.
struct Side {
    session: Arc<Session>,
    current: Current,
}

impl Side {
    fn current(&self) -> Option<RequestId> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }
}

#[async_trait]
impl Control for Side {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        if self.current().is_none() {
            return Ok(());
        }
        self.session.answer(response(id, &answer)).await
    }

    async fn cancel(&self) {
        let Some(id) = self.current() else { return };
        // Where it was not written yet, it never will be.
        if !self.session.withdraw(&id) {
            return;
        }
        let mut params = Writer::object();
        params
            .raw("requestId", id.as_json())
            .str("reason", "The client no longer waits");
        let text = translate::notification("notifications/cancelled", &params.end());
        let _ = timeout(CANCEL_PATIENCE, self.session.tell(text)).await;
    }
}

pub(super) const RESET: Failure = Failure {
    reason: Reason::UpstreamReset,
    effect: SideEffect::Unknown,
};
