//! A request of raincheck's own on a legacy client's session over a line, beside the client's.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::failures::RESET;
use super::super::message::{may_ask, response};
use super::super::pin::{Pin, Pinned};
use super::super::port::CANCEL_PATIENCE;
use super::super::port::{Answer, Control, Event, Exchange, Outgoing};
use super::seat::Request;
use super::session::{Session, Untaken};
use crate::lock::Mutex;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Writer;
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;
use tokio_util::task::task_tracker::TaskTrackerToken;

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
                    *self.current.lock() = None;
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
        *self.current.lock() = Some(id);
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
        let current = self.current.lock();
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
        let text = envelope::notification("notifications/cancelled", &params.end());
        let _ = timeout(CANCEL_PATIENCE, self.session.tell(text)).await;
    }
}

/// A client's own line, as a pin holds it.
struct ClientLine(Arc<Session>);

impl Pinned for ClientLine {
    fn is_a_clients(&self) -> bool {
        true
    }

    fn stays(&self) -> bool {
        true
    }

    fn keep(&self) -> Option<TaskTrackerToken> {
        Some(self.0.needed().token())
    }

    fn give_back(self: Box<Self>) {}
}

/// A pin to a client's own line.
pub(in crate::upstream) fn pin(session: Arc<Session>) -> Pin {
    Pin::of(ClientLine(session))
}

/// The client's own line that the pin leads to.
pub(super) fn line(pin: &Pin) -> Option<Arc<Session>> {
    pin.held(|ClientLine(session)| Some(Arc::clone(session)))
}
