//! How a call is sent on a session: the server takes it, says to come later, or has lost the session, and then
//! the call is sent once more on a new one.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::value::RawValue;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::exchange::Untaken;
use crate::upstream::exchange::session::call::{CallStream, SessionCall};
use crate::upstream::exchange::session::control::CallUnderway;
use crate::upstream::failures::LATER;
use crate::upstream::http::refusal::SessionRefusal;
use crate::upstream::http_response;
use crate::upstream::http_response::ResponseKind;
use crate::upstream::message::may_ask;
use crate::upstream::port::{Event, UpstreamError};
use crate::upstream::request_id::RequestId;
use crate::upstream::sessions::pinned;
use crate::upstream::sessions::pool::SessionLease;
use crate::upstream::sessions::proof;
use crate::upstream::translate;

/// Why the server did not take one POST.
enum PostError {
    Untaken(Untaken),
    /// The server ran nothing, because it has lost the session. This is what it said.
    SessionLost(Event),
}

impl From<Event> for PostError {
    fn from(end: Event) -> Self {
        Self::Untaken(Untaken::End(end))
    }
}

impl SessionCall {
    pub(super) async fn post(&mut self) -> Result<CallStream, Untaken> {
        loop {
            if self.lease.is_none() {
                self.lease = Some(self.lease().await?);
            }
            match self.post_once().await {
                Ok(stream) => return Ok(stream),
                Err(PostError::Untaken(why)) => return Err(why),
                Err(PostError::SessionLost(_)) if self.may_move() => self.move_on(),
                Err(PostError::SessionLost(end)) => return Err(Untaken::End(end)),
            }
        }
    }

    /// Returns `true` if the call may be sent once more on a new session. If the session is the client's, raincheck must not begin
    /// another one.
    fn may_move(&self) -> bool {
        !self.has_moved && !self.is_borrowed()
    }

    /// The server refused the session before it ran anything, so the call is sent once more on a new session.
    fn move_on(&mut self) {
        self.has_moved = true;
        if let Some(pin) = &self.request.pin {
            pinned::lose(pin);
        }
        self.lost = self.lease.take();
    }

    /// An error that is the first word of the server about the call may be a refusal of its session. True: the server
    /// ran nothing, and the call is to be sent once more.
    pub(super) async fn has_lost_session(&mut self, error: &RawValue) -> bool {
        let refusal = SessionRefusal::of_error(StatusCode::OK.as_u16(), error);
        let Some(refusal) = refusal.filter(|_| !self.has_begun && self.may_move()) else {
            return false;
        };
        let Some(lease) = &self.lease else {
            return false;
        };
        let is_lost = proof::is_lost(&lease.session, &refusal).await;
        if is_lost {
            self.move_on();
        }
        is_lost
    }

    /// The session that the request's pin holds, or one of the caller's.
    async fn lease(&mut self) -> Result<SessionLease, Untaken> {
        if let Some(pinned) = self.request.pin.as_ref().and_then(pinned::session) {
            return Ok(pinned);
        }
        let credentials = self.request.credentials.as_ref();
        let lease = if self.has_moved {
            let lost = self.lost.take();
            self.sessions.replace(lost, &self.key, credentials).await
        } else if let Some(slot) = self.slot.take() {
            self.sessions.check_out_at(slot, credentials).await
        } else {
            self.sessions.check_out(&self.key, credentials).await
        };
        Ok(lease?)
    }

    /// Returns `true` if the call runs on its client's own session.
    pub(super) fn is_borrowed(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.session.is_borrowed())
    }

    async fn post_once(&mut self) -> Result<CallStream, PostError> {
        let Some(lease) = &self.lease else {
            return Err(Event::Failed(LATER).into());
        };
        let session = Arc::clone(&lease.session);
        if may_ask(&self.request.method) {
            // The session's own stream is open before the call, because some questions come only there.
            session.hear().await;
        }
        // The level of a client's own session is the client's.
        if let Some(level) = &self.request.log_level
            && !session.is_borrowed()
        {
            session.set_log_level(level).await;
        }
        self.id = if session.is_borrowed() {
            RequestId::random()
        } else {
            self.origin.next_id()
        };
        let unsent = Failure::new(Reason::UpstreamInvalid, SideEffect::None);
        let params =
            translate::for_legacy(&self.request, &self.id).map_err(|_| Event::Failed(unsent))?;
        let body = translate::request(&self.id, &self.request.method, &params);
        // Before the POST, so that a cancel finds a call whose response has not come yet.
        *self.underway.lock() = Some(CallUnderway {
            session: Arc::clone(&session),
            id: self.id.clone(),
            event_id: None,
        });
        if let Some(before) = self.joined.take() {
            // The server refused the call before it ran, so the call cannot ask.
            before.answered();
        }
        // Joined before the POST, because the server may ask before the head of its response comes.
        let calls = session.calls();
        self.joined = Some(calls.join(self.id.clone(), &self.request, self.beside.clone()));
        let method = &self.request.method;
        let head = session.post_with(&self.request.headers);
        let head = self.origin.with_query(head, self.request.query.as_deref());
        let sent = self.origin.request(head, method, body).await;
        let response = sent.map_err(Event::Failed)?;
        session.heard(&response);
        let (kind, refusal) =
            http_response::classify_on_session(response, self.origin.message_bytes_max).await;
        let said = match kind {
            ResponseKind::Messages(messages) => {
                // A cancel that may have come before the call is sent once more from here on (`SessionControl`).
                self.taken.send_replace(true);
                return Ok(CallStream::Reading {
                    messages,
                    is_resumed: false,
                });
            }
            // Some servers answer on the session's own stream as long as there is one.
            ResponseKind::Refused {
                status: StatusCode::ACCEPTED,
                ..
            } if let Some(stream) = session.calls().stream() => {
                self.taken.send_replace(true);
                return Ok(CallStream::Beside(stream));
            }
            ResponseKind::Later(later) => return Err(PostError::Untaken(Untaken::Later(later))),
            ResponseKind::Error(error) => Ok(error),
            ResponseKind::Refused { failure, .. } => Err(failure),
        };
        if let Some(refusal) = refusal
            && proof::is_lost(&session, &refusal).await
        {
            let end = lost(said, session.is_borrowed());
            return Err(PostError::SessionLost(end));
        }
        Err(said.map_or_else(Event::Failed, Event::Error).into())
    }
}

/// The refusal of a call that did not run. The client whose own session is lost begins another one, unless it has to
/// show its credentials first.
fn lost(said: Result<UpstreamError, Failure>, is_borrowed: bool) -> Event {
    match said {
        Ok(error) if !is_borrowed || matches!(error.status, 401 | 403) => Event::Error(error),
        Err(failure) if !is_borrowed => {
            Event::Failed(Failure::new(failure.reason, SideEffect::None))
        }
        Ok(_) | Err(_) => Event::Failed(Failure::new(Reason::UpstreamReset, SideEffect::None)),
    }
}
