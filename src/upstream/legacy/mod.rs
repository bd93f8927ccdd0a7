//! A legacy server: sessions, and questions to the client in the middle of a call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::heard::{self, Heard, Message, Messages, RESET};
use super::http::RequestBody;
use super::later::TRIES;
use super::modern::{is_answer, is_token, log, note};
use super::origin::Origin;
use super::session::Session;
use super::sessions::{Key, Lease, NoSession, Sessions};
use super::{Answer, Event, Exchange, Outgoing, Question, UpstreamError, translate};
use crate::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect, code};
use crate::mcp::input::Kind;
use crate::mcp::json::Object;
use crate::mcp::result;

mod side;

pub(in crate::upstream) use side::response;
use side::{Call, Current, ResumePoint, Side};

/// Between attempts to resume a cut stream.
const RESUME_PAUSE: Duration = Duration::from_millis(500);
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Begins one request; it is sent when the events are first polled.
pub(in crate::upstream) fn begin(
    origin: &Arc<Origin>,
    sessions: Arc<Sessions>,
    outgoing: Outgoing,
) -> Exchange {
    let current = Current::default();
    let (taken, is_taken) = watch::channel(false);
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
        id: 0,
        tries: 0,
        phase: Phase::Unsent,
        told_resumable: false,
    };
    let key = conversation.key.clone();
    exchange(conversation, key, current, is_taken)
}

/// Carries on a call that another process sent, from where it says; nothing is sent but the
/// request for the rest of its stream. `None`: not a resume point of ours.
pub(in crate::upstream) fn adopt(
    origin: &Arc<Origin>,
    sessions: &Arc<Sessions>,
    caller: [u8; 16],
    resume_point: &str,
) -> Option<Exchange> {
    let point: ResumePoint = serde_json::from_str(resume_point).ok()?;
    let event_id = HeaderValue::try_from(point.event).ok()?;
    let capabilities: Arc<str> = point.capabilities.into();
    let key = Key {
        caller,
        capabilities: Arc::clone(&capabilities),
    };
    let lease = sessions.adopt(key.clone(), &point.session)?;
    let current = Arc::new(Mutex::new(Some(Call {
        session: Arc::clone(&lease.session),
        id: point.request,
        event_id: Some(event_id.clone()),
    })));
    let (taken, is_taken) = watch::channel(true);
    let conversation = Conversation {
        outgoing: Outgoing::adopted(caller, capabilities),
        key: key.clone(),
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
        told_resumable: true,
    };
    Some(exchange(conversation, key, current, is_taken))
}

fn exchange(
    conversation: Conversation,
    key: Key,
    current: Current,
    taken: watch::Receiver<bool>,
) -> Exchange {
    let events = stream::unfold(conversation, |mut conversation| async {
        let event = conversation.next().await?;
        Some((event, conversation))
    });
    Exchange {
        events: events.boxed(),
        control: Arc::new(Side {
            current,
            taken,
            capabilities: key.capabilities,
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
    id: u64,
    tries: u32,
    phase: Phase,
    told_resumable: bool,
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

/// Why a request was not taken.
enum Untaken {
    End(Event),
    SessionLost,
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

    fn note_event_id(&self) {
        let Phase::Reading(messages) = &self.phase else {
            return;
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = current.as_mut()
            && call.event_id != messages.last_event_id
        {
            call.event_id.clone_from(&messages.last_event_id);
        }
    }

    fn has_become_resumable(&mut self) -> bool {
        if self.told_resumable || self.outgoing.credentials.is_some() {
            return false;
        }
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.told_resumable = current.as_ref().is_some_and(|call| call.event_id.is_some());
        self.told_resumable
    }

    /// The stream ended without the answer: it can be come back to where an event had an id.
    fn cut(&mut self) -> Result<(), Failure> {
        let Phase::Reading(messages) = &self.phase else {
            return Err(RESET);
        };
        let Some(event_id) = messages
            .last_event_id
            .clone()
            .filter(|_| messages.is_stream())
        else {
            return Err(messages.without_answer());
        };
        let retry = messages.retry;
        self.phase = Phase::Cut { event_id, retry };
        Ok(())
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
        if let Some(lease) = self.lease.take()
            && is_answered
        {
            lease.give_back();
        }
        event
    }

    async fn send(&mut self) -> Result<Box<Messages>, Event> {
        if self.lease.is_none() {
            let credentials = self.outgoing.credentials.as_ref();
            let lease = self.sessions.check_out(&self.key, credentials).await;
            self.lease = Some(lease.map_err(no_session)?);
        }
        match self.send_once().await {
            Ok(messages) => return Ok(messages),
            Err(Untaken::End(event)) => return Err(event),
            Err(Untaken::SessionLost) => {}
        }
        // The server refused the session before it ran anything: once more on a new one.
        if let Some(lease) = self.lease.take() {
            lease.lost();
        }
        let lease = self
            .sessions
            .open(&self.key, self.outgoing.credentials.as_ref())
            .await;
        self.lease = Some(lease.map_err(no_session)?);
        self.send_once().await.map_err(|untaken| match untaken {
            Untaken::End(event) => event,
            Untaken::SessionLost => {
                Event::Failed(Failure::new(Reason::UpstreamHttp, SideEffect::None))
            }
        })
    }

    async fn send_once(&mut self) -> Result<Box<Messages>, Untaken> {
        let Some(lease) = &self.lease else {
            return Err(Untaken::SessionLost);
        };
        let session = Arc::clone(&lease.session);
        if let Some(level) = &self.outgoing.log_level {
            session.set_log_level(level).await;
        }
        self.id = self.origin.next_id();
        let unsent = Failure::new(Reason::UpstreamInvalid, SideEffect::None);
        let params = translate::for_legacy(&self.outgoing, self.id)
            .map_err(|_| Untaken::End(Event::Failed(unsent)))?;
        let body = translate::request(self.id, &self.outgoing.method, &params);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Call {
            session: Arc::clone(&session),
            id: self.id,
            event_id: None,
        });
        let method = &self.outgoing.method;
        let sent = self.origin.request(session.post(), method, body).await;
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
            Heard::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            } if session.has_id() => Err(Untaken::SessionLost),
            Heard::Refused { failure, .. } => Err(Untaken::End(Event::Failed(failure))),
            Heard::Later(pause) => Err(Untaken::End(Event::Later(Some(pause)))),
        }
    }

    /// Comes back to a stream that was cut.
    async fn resume(
        &mut self,
        event_id: &HeaderValue,
        retry: Option<Duration>,
    ) -> Result<(), Failure> {
        let Some(lease) = &self.lease else {
            return Err(RESET);
        };
        let mut pause = retry.unwrap_or(RESUME_PAUSE);
        let session = Arc::clone(&lease.session);
        loop {
            // Whoever waits for this call has a deadline, and drops it then.
            tokio::time::sleep(pause.min(RESUME_PAUSE_MAX)).await;
            pause = (pause * 2).clamp(RESUME_PAUSE, RESUME_PAUSE_MAX);
            let request = session.get().header("last-event-id", event_id);
            hit(Point::ResumeBefore);
            let Ok(response) = self.origin.send(request, RequestBody::empty()).await else {
                continue;
            };
            match heard::judge(response, self.origin.message_bytes_max).await {
                Heard::Messages(mut resumed) => {
                    // Nothing new was said yet: the old id still counts.
                    resumed.last_event_id = Some(event_id.clone());
                    // A stream that ends again and again is not asked for without a pause.
                    resumed.retry = retry.filter(|retry| *retry >= RESUME_PAUSE);
                    self.phase = Phase::Reading(resumed);
                    return Ok(());
                }
                Heard::Later(later) => pause = later,
                // It is not there, or not to be had this way.
                Heard::Error(UpstreamError {
                    status: 400..=405, ..
                })
                | Heard::Refused {
                    status:
                        StatusCode::BAD_REQUEST
                        | StatusCode::UNAUTHORIZED
                        | StatusCode::FORBIDDEN
                        | StatusCode::NOT_FOUND
                        | StatusCode::METHOD_NOT_ALLOWED,
                    ..
                } => return Err(RESET),
                // Another stream is still open there, or a gateway is away for a moment.
                Heard::Error(_) | Heard::Refused { .. } => {}
            }
        }
    }

    async fn on_message(&mut self, message: Message) -> Option<Event> {
        let own = self.id.to_string();
        match message {
            Message::Result { id, result } if *id == *own => Some(self.end(Event::Result(result))),
            Message::Error { id, error } if is_answer(&id, &own) => {
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
                        .filter(|p| is_token(p, self.id) && self.outgoing.wants_progress)
                        .map(Event::Progress),
                    "notifications/message" => log(params, &self.outgoing),
                    _ => None,
                }
            }
            Message::Primed => None,
            Message::Result { .. } | Message::Error { .. } => {
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
        let answer = match Kind::of(method) {
            Some(kind) if declared.contains(capability(kind)) => {
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

pub(super) fn capability(kind: Kind) -> &'static str {
    match kind {
        Kind::Elicitation => "elicitation",
        Kind::Sampling => "sampling",
        Kind::Roots => "roots",
    }
}

/// 404 for a session that the server gave us, or one of the dialects for the same.
fn is_session_lost(session: &Session, status: u16, error: &RawValue) -> bool {
    if status == 404 && session.has_id() {
        return true;
    }
    let number = result::error_code(error).unwrap_or_default();
    let message = result::error_message(error)
        .unwrap_or_default()
        .to_ascii_lowercase();
    status == 400
        && (number == -32006
            || ((number == -32000 || number == code::INVALID_REQUEST)
                && (message.contains("session") || message.contains("not initialized"))))
}

pub(in crate::upstream) fn no_session(why: NoSession) -> Event {
    match why {
        NoSession::Failed(failure) => Event::Failed(failure),
        NoSession::Error(error) => Event::Error(error),
        NoSession::Later(pause) => Event::Later(Some(pause)),
    }
}
