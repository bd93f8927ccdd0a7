//! A legacy server: sessions, and questions to the client in the middle of a call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::heard::{Message, Messages};
use super::later::TRIES;
use super::modern::{is_answer, is_token, log, note};
use super::origin::Origin;
use super::request_id::RequestId;
use super::server::Web;
use super::sessions::{Key, Lease, NoSession, Sessions};
use super::{Answer, Event, Exchange, Outgoing, Pin, Question, UpstreamError, translate};
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect, code};
use crate::mcp::input::Kind;
use crate::mcp::json::Object;

mod both;
pub(in crate::upstream) mod hearers;
mod resume;
mod send;
mod side;
pub(in crate::upstream) mod standing;

use both::Both;
use hearers::Hearing;
use resume::RESUMED_SILENCE;
pub(in crate::upstream) use side::response;
use side::{Call, Current, ResumePoint, Side};

/// Begins one request; it is sent when the events are first polled.
pub(in crate::upstream) fn begin(
    origin: &Arc<Origin>,
    sessions: Arc<Sessions>,
    outgoing: Outgoing,
) -> Exchange {
    let current = Current::default();
    let (taken, is_taken) = watch::channel(false);
    let (beside, said_beside) = hearers::events();
    let pin = outgoing.pin.as_ref();
    let ended = pin.map(Pin::ended).unwrap_or_default();
    let conversation = Conversation {
        key: Key {
            caller: outgoing.caller,
            capabilities: translate::legacy_capabilities(&outgoing.capabilities).into(),
        },
        origin: Arc::clone(origin),
        sessions,
        outgoing,
        lease: None,
        current: Arc::clone(&current),
        taken,
        id: RequestId::number(0),
        tries: 0,
        phase: Phase::Unsent,
        resumed: false,
        told_resumable: false,
        beside,
        hearing: None,
    };
    exchange(conversation, said_beside, is_taken, ended)
}

/// Carries on a call that another process sent, from where it says; nothing is sent but the
/// request for the rest of its stream. `None`: not a resume point of ours.
pub(in crate::upstream) fn adopt(
    web: &Web,
    caller: [u8; 16],
    resume_point: &str,
) -> Option<Exchange> {
    let (origin, sessions) = (&web.origin, &web.sessions);
    let point: ResumePoint = serde_json::from_str(resume_point).ok()?;
    let event_id = HeaderValue::try_from(point.event).ok()?;
    let capabilities: Arc<str> = point.capabilities.into();
    let key = Key {
        caller,
        capabilities: Arc::clone(&capabilities),
    };
    let (lease, ended) = if point.session.borrowed {
        let identity = point.session.identity(caller)?;
        let session = web.client_sessions.get(identity)?;
        let ended = session.ended();
        (sessions.borrow(session), ended)
    } else {
        let lease = sessions.adopt(key.clone(), &point.session)?;
        (lease, CancellationToken::new())
    };
    let current = Arc::new(Mutex::new(Some(Call {
        session: Arc::clone(&lease.session),
        id: point.request.clone(),
        event_id: Some(event_id.clone()),
    })));
    let (taken, is_taken) = watch::channel(true);
    let (beside, said_beside) = hearers::events();
    let outgoing = Outgoing::adopted(caller, capabilities);
    let hearers = lease.session.hearers();
    let hearing = hearers.join(point.request.clone(), &outgoing, beside.clone());
    let conversation = Conversation {
        outgoing,
        key,
        origin: Arc::clone(origin),
        sessions: Arc::clone(sessions),
        lease: Some(lease),
        current: Arc::clone(&current),
        taken,
        id: point.request,
        tries: 1,
        phase: Phase::Cut {
            event_id,
            retry: Some(Duration::ZERO),
        },
        resumed: true,
        told_resumable: true,
        beside,
        hearing: Some(hearing),
    };
    Some(exchange(conversation, said_beside, is_taken, ended))
}

fn exchange(
    conversation: Conversation,
    said_beside: mpsc::Receiver<Event>,
    taken: watch::Receiver<bool>,
    ended: CancellationToken,
) -> Exchange {
    let capabilities = Arc::clone(&conversation.key.capabilities);
    let current = Arc::clone(&conversation.current);
    let (answered, was_answered) = watch::channel(None);
    let patience = conversation.outgoing.answer_patience;
    let on_stream = stream::unfold(conversation, |mut conversation| async {
        let event = conversation.next().await?;
        Some((event, conversation))
    });
    let both = Both {
        on_stream: on_stream.boxed(),
        said_beside,
        current: Arc::clone(&current),
        answered: was_answered,
        patience,
        silent_since: None,
        ended,
        is_over: false,
    };
    let events = stream::unfold(both, |mut both| async {
        let event = both.next().await?;
        Some((event, both))
    });
    Exchange {
        events: events.boxed(),
        control: Arc::new(Side {
            current,
            capabilities,
            taken,
            answered,
        }),
    }
}

struct Conversation {
    origin: Arc<Origin>,
    sessions: Arc<Sessions>,
    outgoing: Outgoing,
    key: Key,
    lease: Option<Lease>,
    current: Current,
    taken: watch::Sender<bool>,
    id: RequestId,
    tries: u32,
    phase: Phase,
    /// What is read is the rest of a stream that was cut.
    resumed: bool,
    told_resumable: bool,
    /// Where the session's own stream puts what it says to this call, while it is joined.
    beside: mpsc::Sender<Event>,
    hearing: Option<Hearing>,
}

enum Phase {
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
    async fn next(&mut self) -> Option<Event> {
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
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        match self.hearing.take() {
            Some(hearing) if is_answered => hearing.answered(),
            _ => {}
        }
        if let Some(lease) = self.lease.take()
            && is_answered
        {
            match &self.outgoing.pin {
                Some(pin) => pin.hold_session(lease),
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

/// The requests in whose course a server may ask (2026-07-28 says so, and nobody does otherwise),
/// and the one for the result of a server's own task (2025-11-25, Tasks).
pub(in crate::upstream) fn may_ask(method: &str) -> bool {
    matches!(
        method,
        "tools/call" | "prompts/get" | "resources/read" | "tasks/result"
    )
}

pub(in crate::upstream) fn no_session(why: NoSession) -> Event {
    match why {
        NoSession::Failed(failure) => Event::Failed(failure),
        NoSession::Error(error) => Event::Error(error),
        NoSession::Later(pause) => Event::Later(Some(pause)),
    }
}
