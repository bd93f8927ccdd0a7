//! A request of raincheck's over the line of a legacy client's session, beside the client's own requests.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::exchange::{RequestTransport, Unsent, Untaken};
use crate::upstream::failures::RESET;
use crate::upstream::line::borrowed::BorrowedRequest;
use crate::upstream::line::session::{AcceptError, LineSession};
use crate::upstream::message::{cancelled, may_ask, response};
use crate::upstream::pin::{Pin, Pinned};
use crate::upstream::port::{Answer, CANCEL_PATIENCE, Control, Event, Exchange, UpstreamRequest};
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;

/// Begins one request; it is sent when the events are first polled.
pub(in crate::upstream) fn begin(
    session: Arc<LineSession>,
    request: Arc<UpstreamRequest>,
) -> Exchange {
    let underway = CurrentId::default();
    let control = BorrowedLineControl {
        session: Arc::clone(&session),
        underway: Arc::clone(&underway),
    };
    let transport = BorrowedLineRequest {
        session,
        request,
        underway,
    };
    super::begin(transport, Arc::new(control))
}

/// The request's id, while it is under way.
type CurrentId = Arc<Mutex<Option<RequestId>>>;

struct BorrowedLineRequest {
    session: Arc<LineSession>,
    request: Arc<UpstreamRequest>,
    underway: CurrentId,
}

impl RequestTransport for BorrowedLineRequest {
    type Open = mpsc::Receiver<Event>;

    const TELLS_SENT: bool = true;

    async fn send(&mut self) -> Result<Self::Open, Untaken> {
        let failed = |reason| Untaken::End(Event::Failed(Failure::new(reason, SideEffect::None)));
        // The client's own requests run on this line, too, and no client has an id of this form.
        let id = RequestId::random();
        let params = translate::for_legacy(&self.request, &id);
        let params = params.map_err(|_| failed(Reason::UpstreamInvalid))?;
        let method = &self.request.method;
        let request = BorrowedRequest {
            text: translate::request(&id, method, &params),
            may_ask: may_ask(method),
            id: id.clone(),
        };
        // A cancel during this wait finds no id and needs none, because dropping the wait sends nothing.
        let carried = self.session.carry(request).await;
        let events = carried.map_err(|why| match why {
            AcceptError::Over => failed(Reason::UpstreamReset),
            AcceptError::Busy => failed(Reason::UpstreamUnreachable),
        })?;
        *self.underway.lock() = Some(id);
        Ok(events)
    }

    async fn next(&mut self, events: &mut Self::Open) -> Result<Event, Unsent> {
        loop {
            // The queue ends without a last event only where the request was withdrawn.
            let event = events.recv().await.unwrap_or(Event::Failed(RESET));
            if self.request.wants_progress || !matches!(event, Event::Progress(_)) {
                return Ok(event);
            }
        }
    }

    fn end(&mut self, _events: Option<Self::Open>, _last: &Event) {
        *self.underway.lock() = None;
    }
}

/// The way back to the session while the request is under way.
struct BorrowedLineControl {
    session: Arc<LineSession>,
    underway: CurrentId,
}

impl BorrowedLineControl {
    fn underway(&self) -> Option<RequestId> {
        self.underway.lock().clone()
    }
}

#[async_trait]
impl Control for BorrowedLineControl {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        // The call has ended, so the server needs no answer to its question.
        if self.underway().is_none() {
            return Ok(());
        }
        self.session.answer(response(id, &answer)).await
    }

    async fn cancel(&self) {
        let Some(id) = self.underway() else { return };
        // If the request was not written yet, it never will be.
        if self.session.withdraw(&id) {
            let _ = timeout(CANCEL_PATIENCE, self.session.tell(cancelled(&id))).await;
        }
    }
}

/// A client's own line, as a pin holds it.
struct ClientLine(Arc<LineSession>);

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
pub(in crate::upstream) fn pin(session: Arc<LineSession>) -> Pin {
    Pin::of(ClientLine(session))
}

/// The client's own line that the pin leads to.
pub(in crate::upstream) fn line(pin: &Pin) -> Option<Arc<LineSession>> {
    pin.with(|ClientLine(session)| Some(Arc::clone(session)))
}
