//! One call to a legacy server, from its sending to its answer.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use super::super::heard::{Message, Messages};
use super::super::later::TRIES;
use super::super::message::{is_answer, is_token, log, note, response};
use super::super::origin::Origin;
use super::super::pinned;
use super::super::port::{Answer, Event, Outgoing, Question, UpstreamError};
use super::super::request_id::RequestId;
use super::super::sessions::{Key, Lease, Sessions};
use super::hearers::Hearing;
use super::side::Current;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect, code};
use crate::mcp::input::Kind;
use crate::mcp::json::Object;

/// A resumed stream that says nothing for so long is asked for once more.
const RESUMED_SILENCE: Duration = Duration::from_secs(10);

pub(super) struct Conversation {
    pub(super) origin: Arc<Origin>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) outgoing: Outgoing,
    pub(super) key: Key,
    pub(super) lease: Option<Lease>,
    pub(super) current: Current,
    pub(super) taken: watch::Sender<bool>,
    pub(super) id: RequestId,
    pub(super) tries: u32,
    pub(super) phase: Phase,
    /// What is read is the rest of a stream that was cut.
    pub(super) resumed: bool,
    pub(super) told_resumable: bool,
    /// Where the session's own stream puts what it says to this call, while it is joined.
    pub(super) beside: mpsc::Sender<Event>,
    pub(super) hearing: Option<Hearing>,
}

pub(super) enum Phase {
    Unsent,
    /// Sent again after so long.
    Later(Duration),
    Reading(Box<Messages>),
    /// The call runs on at the server, and its events wait behind this one.
    Cut {
        event_id: HeaderValue,
        retry: Option<Duration>,
    },
    Over,
}

impl Conversation {
    pub(super) async fn next(&mut self) -> Option<Event> {
        if let Phase::Later(pause) = self.phase {
            tokio::time::sleep(pause).await;
            self.phase = Phase::Unsent;
        }
        if matches!(self.phase, Phase::Unsent) {
            self.tries += 1;
            match self.send().await {
                Ok(messages) => {
                    self.phase = Phase::Reading(messages);
                    if self.tries > 1 {
                        return Some(Event::Later(None));
                    }
                }
                Err(Event::Later(Some(pause))) if self.tries < TRIES => {
                    return Some(self.wait(pause));
                }
                Err(Event::Later(_)) => {
                    let failure = Failure::new(Reason::UpstreamHttp, SideEffect::None);
                    return Some(self.end(Event::Failed(failure)));
                }
                Err(end) => return Some(self.end(end)),
            }
        }
        loop {
            // After the message that came with it was handed over, not before: whoever resumes
            // there never hears of it.
            if self.has_become_resumable() {
                return Some(Event::Resumable);
            }
            let heard = match &mut self.phase {
                Phase::Unsent | Phase::Later(_) | Phase::Over => return None,
                Phase::Reading(messages) if self.resumed => {
                    // Some servers tell what was missed, and nothing of what comes after.
                    match tokio::time::timeout(RESUMED_SILENCE, messages.next()).await {
                        Ok(heard) => heard,
                        Err(_elapsed) => Ok(None),
                    }
                }
                Phase::Reading(messages) => messages.next().await,
                Phase::Cut { event_id, retry } => {
                    let (event_id, retry) = (event_id.clone(), *retry);
                    match self.resume(&event_id, retry).await {
                        Ok(()) => continue,
                        Err(failure) => return Some(self.end(Event::Failed(failure))),
                    }
                }
            };
            let heard = match heard {
                Ok(Some(message)) => {
                    self.note_event_id();
                    self.on_message(message).await
                }
                Ok(None) => self
                    .cut()
                    .err()
                    .map(|failure| self.end(Event::Failed(failure))),
                Err(failure) => Some(self.end(Event::Failed(failure))),
            };
            if let Some(event) = heard {
                return Some(event);
            }
        }
    }

    fn wait(&mut self, pause: Duration) -> Event {
        // Nothing runs that could be cancelled, and nothing must be sent after the cancel.
        *self.current.lock() = None;
        self.phase = Phase::Later(pause);
        Event::Later(Some(pause))
    }

    /// Ends the conversation. Only after an answer is the session fit for another call.
    fn end(&mut self, event: Event) -> Event {
        let is_answered = matches!(event, Event::Result(_) | Event::Error(_));
        if let Phase::Reading(messages) = std::mem::replace(&mut self.phase, Phase::Over)
            && is_answered
        {
            self.origin.http.finish(messages.into_body());
        }
        *self.current.lock() = None;
        match self.hearing.take() {
            Some(hearing) if is_answered => hearing.answered(),
            _ => {}
        }
        if let Some(lease) = self.lease.take()
            && is_answered
        {
            match &self.outgoing.pin {
                Some(pin) => pinned::hold(pin, lease),
                None => lease.give_back(),
            }
        }
        event
    }

    async fn on_message(&mut self, message: Message) -> Option<Event> {
        let own = &self.id;
        match message {
            Message::Result { id, result } if own.is(&id) => Some(self.end(Event::Result(result))),
            Message::Error { id, error } if is_answer(&id, own) => {
                let error = UpstreamError {
                    error,
                    status: 200,
                    www_authenticate: None,
                };
                Some(self.end(Event::Error(error)))
            }
            Message::Request { id, method, params } => self.on_request(id, &method, params).await,
            Message::Notification { method, params } => {
                note(&self.origin, &method);
                match &*method {
                    "notifications/progress" => params
                        .filter(|p| is_token(p, &self.id) && self.outgoing.wants_progress)
                        .map(Event::Progress),
                    "notifications/message" => log(params, &self.outgoing),
                    _ => None,
                }
            }
            Message::Primed => None,
            Message::Unreadable { id, failure, .. } if own.is(&id) => {
                Some(self.end(Event::Failed(failure)))
            }
            Message::Result { .. } | Message::Error { .. } | Message::Unreadable { .. } => {
                if let Phase::Reading(messages) = &mut self.phase {
                    messages.note_stray();
                }
                None
            }
        }
    }

    async fn on_request(
        &mut self,
        id: Box<str>,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Option<Event> {
        let declared = Object::parse(&self.key.capabilities).unwrap_or_default();
        // What a client declared on its own session is between the server and it.
        let is_borrowed = self.is_borrowed();
        let answer = match Kind::of(method) {
            Some(kind) if is_borrowed || declared.contains(kind.capability()) => {
                let question = Question {
                    id: (&*id).into(),
                    method: method.into(),
                    params,
                };
                return Some(Event::Question(question));
            }
            None if method == "ping" => Answer::Result("{}".into()),
            _ => Answer::Refused(
                RpcError::new(code::METHOD_NOT_FOUND, "The client does not answer this")
                    .to_json()
                    .into(),
            ),
        };
        if let Some(lease) = &self.lease {
            // A server that cannot be told will notice by itself.
            let _ = lease.session.tell(response(&id, &answer)).await;
        }
        None
    }
}
