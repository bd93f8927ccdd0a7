//! How a call gets to a session: taken, told to come later, or sent once more because the session
//! was lost.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::super::heard::{self, Heard, Messages};
use super::super::message::may_ask;
use super::super::pinned;
use super::super::port::Event;
use super::super::refusal;
use super::super::request_id::RequestId;
use super::super::session::Session;
use super::super::sessions::Lease;
use super::super::translate;
use super::Call;
use super::conversation::Conversation;
use crate::mcp::error::{Failure, Reason, SideEffect, code};
use crate::mcp::result;

/// Why a request was not taken.
enum Untaken {
    End(Event),
    SessionLost,
}

impl Conversation {
    pub(super) async fn send(&mut self) -> Result<Box<Messages>, Event> {
        if self.lease.is_none() {
            self.lease = Some(self.lease().await?);
        }
        match self.send_once().await {
            Ok(messages) => return Ok(messages),
            Err(Untaken::End(event)) => return Err(event),
            Err(Untaken::SessionLost) => {}
        }
        if self.is_borrowed() {
            // It is not ours to begin anew.
            let lost = Failure::new(Reason::UpstreamReset, SideEffect::None);
            return Err(Event::Failed(lost));
        }
        // The server refused the session before it ran anything: once more on a new one.
        if let Some(pin) = &self.outgoing.pin {
            pinned::lose(pin);
        }
        if let Some(lease) = self.lease.take() {
            lease.lost();
        }
        let credentials = self.outgoing.credentials.as_ref();
        let lease = self.sessions.replace(&self.key, credentials).await;
        self.lease = Some(lease.map_err(Event::from)?);
        self.send_once().await.map_err(|untaken| match untaken {
            Untaken::End(event) => event,
            Untaken::SessionLost => {
                Event::Failed(Failure::new(Reason::UpstreamHttp, SideEffect::None))
            }
        })
    }

    /// The session that the request's pin holds, or one of the caller's.
    async fn lease(&self) -> Result<Lease, Event> {
        if let Some(pinned) = self.outgoing.pin.as_ref().and_then(pinned::session) {
            return Ok(pinned);
        }
        let credentials = self.outgoing.credentials.as_ref();
        let lease = self.sessions.check_out(&self.key, credentials).await;
        lease.map_err(Event::from)
    }

    /// It runs on its client's own session.
    pub(super) fn is_borrowed(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.session.is_borrowed())
    }

    async fn send_once(&mut self) -> Result<Box<Messages>, Untaken> {
        let Some(lease) = &self.lease else {
            return Err(Untaken::SessionLost);
        };
        let session = Arc::clone(&lease.session);
        if may_ask(&self.outgoing.method) {
            session.hear().await;
        }
        // The level of a client's own session is the client's.
        if let Some(level) = &self.outgoing.log_level
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
        let params = translate::for_legacy(&self.outgoing, &self.id)
            .map_err(|_| Untaken::End(Event::Failed(unsent)))?;
        let body = translate::request(&self.id, &self.outgoing.method, &params);
        *self.current.lock() = Some(Call {
            session: Arc::clone(&session),
            id: self.id.clone(),
            event_id: None,
        });
        if let Some(before) = self.hearing.take() {
            // It was refused before it ran.
            before.answered();
        }
        if may_ask(&self.outgoing.method) {
            let hearers = session.hearers();
            let joined = hearers.join(self.id.clone(), &self.outgoing, self.beside.clone());
            self.hearing = Some(joined);
        }
        let method = &self.outgoing.method;
        let client = &*self.outgoing.headers;
        let head = client.iter().fold(session.post(), |head, (name, value)| {
            head.header(name, value)
        });
        let sent = self.origin.request(head, method, body).await;
        let response = sent.map_err(|failure| Untaken::End(Event::Failed(failure)))?;
        match heard::judge(response, self.origin.message_bytes_max).await {
            Heard::Messages(messages) => {
                self.taken.send_replace(true);
                Ok(messages)
            }
            Heard::Error(error) if is_session_lost(&session, error.status, &error.error) => {
                Err(Untaken::SessionLost)
            }
            Heard::Error(error) => Err(Untaken::End(Event::Error(error))),
            // Some servers say so without a word of JSON-RPC.
            Heard::Refused {
                is_session_lost: true,
                ..
            } if session.has_id() => Err(Untaken::SessionLost),
            Heard::Refused { failure, .. } => Err(Untaken::End(Event::Failed(failure))),
            Heard::Later(pause) => Err(Untaken::End(Event::Later(Some(pause)))),
        }
    }
}

/// 404 for a session that the server gave us, or one of the dialects for the same.
fn is_session_lost(session: &Session, status: u16, error: &RawValue) -> bool {
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
