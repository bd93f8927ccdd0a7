//! The way back to a legacy server while a call is under way: answers, the cancel, and what
//! another process needs to carry the call on.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::super::message::response;
use super::super::port::{Answer, Control};
use super::super::request_id::RequestId;
use super::super::session::{Passport, Session};
use crate::lock::Mutex;
use crate::mcp::envelope;
use crate::mcp::error::Failure;
use crate::mcp::json::Writer;

/// How long the server may take to hear of a cancel: one that is overloaded is slow to, and would run
/// the call for nobody.
const TELLING: Duration = Duration::from_secs(15);

/// A call that is on its way has reached the server after this, or it is one that answers in one piece.
const TAKING: Duration = Duration::from_secs(5);

/// Where another process can carry a call on.
#[derive(Serialize, Deserialize)]
pub(super) struct ResumePoint {
    pub(super) session: Passport,
    /// Our JSON-RPC id of the call.
    pub(super) request: RequestId,
    /// The last event taken.
    pub(super) event: String,
    /// What was declared for the client.
    pub(super) capabilities: String,
}

/// The call under way.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) session: Arc<Session>,
    pub(super) id: RequestId,
    /// The last event taken.
    pub(super) event_id: Option<HeaderValue>,
}

pub(super) type Current = Arc<Mutex<Option<Call>>>;

/// The way back to the call's session while the call is under way.
pub(super) struct Side {
    pub(super) current: Current,
    pub(super) capabilities: Arc<str>,
    /// The server has begun to answer: it knows the call.
    pub(super) taken: watch::Receiver<bool>,
    /// When a server without sessions was last given an answer.
    pub(super) answered: watch::Sender<Option<Instant>>,
}

impl Side {
    async fn tell_cancelled(&self) {
        let Some(Call { session, id, .. }) = self.current() else {
            return;
        };
        let mut params = Writer::object();
        params
            .raw("requestId", id.as_json())
            .str("reason", "The client no longer waits");
        let message = envelope::notification("notifications/cancelled", &params.end());
        let _ = session.tell(message).await;
    }

    fn current(&self) -> Option<Call> {
        self.current.lock().clone()
    }
}

#[async_trait]
impl Control for Side {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        let Some(Call { session, .. }) = self.current() else {
            return Ok(());
        };
        session.tell(response(id, &answer)).await?;
        if !session.has_id() {
            self.answered.send_replace(Some(Instant::now()));
        }
        Ok(())
    }

    async fn cancel(&self) {
        if self.current().is_none() {
            // Nothing was sent, and nothing will be once the exchange is dropped.
            return;
        }
        let mut taken = self.taken.clone();
        let was_taken = *taken.borrow();
        let told = timeout(TELLING, self.tell_cancelled()).await;
        if told.is_err() {
            tracing::warn!("the upstream could not be told that a call is cancelled");
        }
        // On a connection of its own the notification may overtake the call, and a server
        // ignores one for a call that it does not know: once more when it does.
        if !was_taken && matches!(timeout(TAKING, taken.wait_for(|it| *it)).await, Ok(Ok(_))) {
            let _ = timeout(TELLING, self.tell_cancelled()).await;
        }
    }

    fn resume_point(&self) -> Option<Box<str>> {
        let call = self.current()?;
        let point = ResumePoint {
            session: call.session.passport()?,
            request: call.id,
            event: call.event_id?.to_str().ok()?.to_owned(),
            capabilities: self.capabilities.as_ref().to_owned(),
        };
        serde_json::to_string(&point).ok().map(Into::into)
    }

    fn hold(&self) {
        if let Some(call) = self.current() {
            call.session.hold();
        }
    }

    fn leave(&self) {
        if let Some(call) = self.current() {
            call.session.leave();
        }
    }
}
