//! The control of a call at a legacy server: answers, the cancel, and what another process needs to carry the
//! call on.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::base::lock::Mutex;
use crate::mcp::error::Failure;
use crate::upstream::message::{cancelled, response};
use crate::upstream::port::{Answer, Control};
use crate::upstream::request_id::RequestId;
use crate::upstream::sessions::session::{ServerSession, SessionHandover};

/// The time that the server may take to accept a cancel. An overloaded server is slow, and without the cancel it
/// would go on with a call that no client waits for.
const TELLING: Duration = Duration::from_secs(15);

/// The time to wait until the server has begun to answer a call. A server that is slower answers in one piece.
const TAKING: Duration = Duration::from_secs(5);

/// The data by which another process carries a call on.
#[derive(Serialize, Deserialize)]
pub(super) struct CallResumePoint {
    pub(super) session: SessionHandover,
    /// Our JSON-RPC id of the call.
    pub(super) request: RequestId,
    /// The last event taken.
    pub(super) event: String,
    /// The capabilities that were declared for the client.
    pub(super) capabilities: String,
}

/// The call under way.
#[derive(Clone)]
pub(super) struct CallUnderway {
    pub(super) session: Arc<ServerSession>,
    pub(super) id: RequestId,
    /// The last event taken.
    pub(super) event_id: Option<HeaderValue>,
}

pub(super) type CurrentCall = Arc<Mutex<Option<CallUnderway>>>;

/// Reaches the call's session while the call is under way.
pub(super) struct SessionControl {
    pub(super) underway: CurrentCall,
    pub(super) capabilities: Arc<str>,
    /// The server has begun to answer: it knows the call.
    pub(super) taken: watch::Receiver<bool>,
    /// When a server without sessions was last given an answer.
    pub(super) answered: watch::Sender<Option<Instant>>,
}

impl SessionControl {
    async fn tell_cancelled(&self) {
        let Some(CallUnderway { session, id, .. }) = self.underway() else {
            return;
        };
        // A cancel that does not arrive costs the server work only: no client waits for the outcome any more.
        let _ = session.tell(cancelled(&id)).await;
    }

    fn underway(&self) -> Option<CallUnderway> {
        self.underway.lock().clone()
    }
}

#[async_trait]
impl Control for SessionControl {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        let Some(CallUnderway { session, .. }) = self.underway() else {
            return Ok(());
        };
        session.tell(response(id, &answer)).await?;
        // Most servers without sessions lose the answer (`answer_patience`).
        if !session.has_id() {
            self.answered.send_replace(Some(Instant::now()));
        }
        Ok(())
    }

    async fn cancel(&self) {
        if self.underway().is_none() {
            // Nothing was sent, and nothing will be sent after the exchange is dropped.
            return;
        }
        let mut taken = self.taken.clone();
        // Read before the first attempt, because a call that is taken meanwhile may arrive after the cancel.
        let was_taken = *taken.borrow();
        let told = timeout(TELLING, self.tell_cancelled()).await;
        if told.is_err() {
            tracing::warn!("the server could not be told that a call is cancelled");
        }
        // The notification has a connection of its own and may arrive before the call. A server ignores a
        // cancel of a call that it does not know, so the cancel is sent once more when it does.
        if !was_taken && matches!(timeout(TAKING, taken.wait_for(|it| *it)).await, Ok(Ok(_))) {
            let _ = timeout(TELLING, self.tell_cancelled()).await;
        }
    }

    fn resume_point(&self) -> Option<Box<str>> {
        let call = self.underway()?;
        let point = CallResumePoint {
            session: call.session.handover()?,
            request: call.id,
            event: call.event_id?.to_str().ok()?.to_owned(),
            capabilities: self.capabilities.as_ref().to_owned(),
        };
        serde_json::to_string(&point).ok().map(Into::into)
    }

    fn hold(&self) {
        if let Some(call) = self.underway() {
            call.session.hold();
        }
    }

    fn leave(&self) {
        if let Some(call) = self.underway() {
            call.session.leave();
        }
    }
}
