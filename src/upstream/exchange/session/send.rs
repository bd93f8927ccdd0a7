//! How a call is sent on a session: the server takes it, says to come later, or has lost the session, and then
//! the call is sent once more on a new one.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::mcp::error::{Failure, Reason, SideEffect, code};
use crate::mcp::result;
use crate::upstream::exchange::Untaken;
use crate::upstream::exchange::session::call::SessionCall;
use crate::upstream::exchange::session::control::CallUnderway;
use crate::upstream::failures::LATER;
use crate::upstream::http::refusal;
use crate::upstream::http_response;
use crate::upstream::http_response::{Messages, ResponseKind};
use crate::upstream::message::may_ask;
use crate::upstream::port::Event;
use crate::upstream::request_id::RequestId;
use crate::upstream::sessions::pinned;
use crate::upstream::sessions::pool::SessionLease;
use crate::upstream::sessions::session::ServerSession;
use crate::upstream::translate;

/// Why the server did not take one POST.
enum NotPosted {
    Untaken(Untaken),
    SessionLost,
}

impl From<Event> for NotPosted {
    fn from(end: Event) -> Self {
        Self::Untaken(Untaken::End(end))
    }
}

impl SessionCall {
    pub(super) async fn post(&mut self) -> Result<Box<Messages>, Untaken> {
        if self.lease.is_none() {
            self.lease = Some(self.lease().await?);
        }
        match self.post_once().await {
            Ok(messages) => return Ok(messages),
            Err(NotPosted::Untaken(why)) => return Err(why),
            Err(NotPosted::SessionLost) => {}
        }
        if self.is_borrowed() {
            // The session is the client's, and raincheck must not begin another one.
            let lost = Failure::new(Reason::UpstreamReset, SideEffect::None);
            return Err(Untaken::End(Event::Failed(lost)));
        }
        // The server refused the session before it ran anything, so the call is sent once more on a new
        // session.
        if let Some(pin) = &self.request.pin {
            pinned::lose(pin);
        }
        if let Some(lease) = self.lease.take() {
            lease.lost();
        }
        let credentials = self.request.credentials.as_ref();
        let lease = self.sessions.replace(&self.key, credentials).await;
        self.lease = Some(lease?);
        self.post_once().await.map_err(|why| match why {
            NotPosted::Untaken(why) => why,
            NotPosted::SessionLost => Untaken::End(Event::Failed(LATER)),
        })
    }

    /// The session that the request's pin holds, or one of the caller's.
    async fn lease(&self) -> Result<SessionLease, Untaken> {
        if let Some(pinned) = self.request.pin.as_ref().and_then(pinned::session) {
            return Ok(pinned);
        }
        let credentials = self.request.credentials.as_ref();
        Ok(self.sessions.check_out(&self.key, credentials).await?)
    }

    /// Whether the call runs on its client's own session.
    pub(super) fn is_borrowed(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.session.is_borrowed())
    }

    async fn post_once(&mut self) -> Result<Box<Messages>, NotPosted> {
        let Some(lease) = &self.lease else {
            return Err(NotPosted::SessionLost);
        };
        let session = Arc::clone(&lease.session);
        if may_ask(&self.request.method) {
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
        *self.underway.lock() = Some(CallUnderway {
            session: Arc::clone(&session),
            id: self.id.clone(),
            event_id: None,
        });
        if let Some(before) = self.joined.take() {
            // The server refused the call before it ran, so the call cannot ask.
            before.answered();
        }
        if may_ask(&self.request.method) {
            let calls = session.calls();
            let joined = calls.join(self.id.clone(), &self.request, self.beside.clone());
            self.joined = Some(joined);
        }
        let method = &self.request.method;
        let client = &*self.request.headers;
        let head = client.iter().fold(session.post(), |head, (name, value)| {
            head.header(name, value)
        });
        let query = self.request.query.as_deref();
        let head = self.origin.with_query(head, query);
        let sent = self.origin.request(head, method, body).await;
        let response = sent.map_err(Event::Failed)?;
        match http_response::classify_response(response, self.origin.message_bytes_max).await {
            ResponseKind::Messages(messages) => {
                self.taken.send_replace(true);
                Ok(messages)
            }
            ResponseKind::Error(error) if is_session_lost(&session, error.status, &error.error) => {
                Err(NotPosted::SessionLost)
            }
            ResponseKind::Error(error) => Err(Event::Error(error).into()),
            // Some servers refuse a lost session without a JSON-RPC error.
            ResponseKind::Refused {
                is_session_lost: true,
                ..
            } if session.has_id() => Err(NotPosted::SessionLost),
            ResponseKind::Refused { failure, .. } => Err(Event::Failed(failure).into()),
            ResponseKind::Later(pause) => Err(NotPosted::Untaken(Untaken::Later(pause))),
        }
    }
}

/// Whether the server has lost the session: 404, or one of the other ways in which servers say so.
fn is_session_lost(session: &ServerSession, status: u16, error: &RawValue) -> bool {
    if status == 404 && session.has_id() {
        return true;
    }
    let number = result::error_code(error).unwrap_or_default();
    let message = result::error_message(error).unwrap_or_default();
    status == 400
        && (number == -32006
            || ((number == -32000 || number == code::INVALID_REQUEST)
                && refusal::names_session(&message)))
}
