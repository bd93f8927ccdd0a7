//! One call on a session, from its sending to its answer.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::mcp::error::Failure;
use crate::mcp::input::InputKind;
use crate::mcp::json::Object;
use crate::upstream::exchange::session::control::CurrentCall;
use crate::upstream::exchange::session::fitness::Fitness;
use crate::upstream::exchange::{RequestTransport, Unsent, Untaken};
use crate::upstream::failures::{LATER, RESET};
use crate::upstream::http::origin::Origin;
use crate::upstream::http_response::Messages;
use crate::upstream::message::{About, about, question, response};
use crate::upstream::pool::{PoolKey, SlotUse};
use crate::upstream::port::{Event, Keep, UpstreamRequest};
use crate::upstream::request_id::RequestId;
use crate::upstream::server_message::ServerMessage;
use crate::upstream::sessions::calls::CallGuard;
use crate::upstream::sessions::pinned;
use crate::upstream::sessions::pool::{HttpSessionPool, SessionLease};
use crate::upstream::sessions::session::ServerSession;

/// A resumed stream that says nothing for this long is requested once more: some servers send what was missed,
/// and nothing of what comes after.
const RESUMED_SILENCE: Duration = Duration::from_secs(10);

/// Upper bound of the time in which a request other than a call is answered on the session's own stream.
const BESIDE: Duration = Duration::from_secs(30);

pub(super) struct SessionCall {
    pub(super) origin: Arc<Origin>,
    pub(super) sessions: Arc<HttpSessionPool>,
    pub(super) request: Arc<UpstreamRequest>,
    pub(super) key: PoolKey,
    /// The place that the call has before it is sent.
    pub(super) slot: Option<SlotUse<ServerSession>>,
    pub(super) lease: Option<SessionLease>,
    /// The session that the server has lost, until the call has another one in its place.
    pub(super) lost: Option<SessionLease>,
    pub(super) underway: CurrentCall,
    pub(super) taken: watch::Sender<bool>,
    pub(super) id: RequestId,
    pub(super) has_told_resumable: bool,
    /// The server said something about the call: it runs.
    pub(super) has_begun: bool,
    /// The call was sent once more, on another session than its first.
    pub(super) has_moved: bool,
    /// Where the session's own stream puts events of this call, while the call is joined.
    pub(super) beside: mpsc::Sender<Event>,
    pub(super) joined: Option<CallGuard>,
}

/// The stream of the call.
pub(super) enum CallStream {
    Reading {
        messages: Box<Messages>,
        /// The stream that is read is the rest of one that was cut.
        is_resumed: bool,
    },
    /// The call runs on at the server. Its next events follow the event with this id.
    Cut {
        event_id: HeaderValue,
        retry: Option<Duration>,
        /// The server refused the credentials of the request for the rest, and the runner knows.
        is_refused: bool,
    },
    /// The server has taken the call and answers on the session's own stream, from where the answer comes in `beside`.
    /// Cancelled when that stream ends.
    Beside(CancellationToken),
}

impl RequestTransport for SessionCall {
    type Open = CallStream;

    async fn send(&mut self) -> Result<CallStream, Untaken> {
        self.post().await
    }

    async fn next(&mut self, stream: &mut CallStream) -> Result<Event, Unsent> {
        loop {
            // Only after the message with that id was handed over: a process that resumes there never hears
            // that message.
            if self.has_become_resumable() {
                return Ok(Event::Resumable(Keep::Soon));
            }
            let read = match stream {
                CallStream::Reading {
                    messages,
                    is_resumed,
                } => self.read(messages, *is_resumed).await,
                CallStream::Cut {
                    event_id,
                    retry,
                    is_refused,
                } => {
                    let resumed = self.resume(event_id, *retry, *is_refused).await;
                    *is_refused |= matches!(resumed, Ok(StreamRead::Unauthorized));
                    resumed
                }
                CallStream::Beside(session_stream) => {
                    let over = session_stream.cancelled();
                    // A server may have ignored a request that it does not know.
                    let is_over = if &*self.request.method == "tools/call" {
                        over.await;
                        true
                    } else {
                        timeout(BESIDE, over).await.is_ok()
                    };
                    let another = self.session_stream().filter(|_| is_over);
                    another.map(StreamRead::Beside).ok_or(RESET)
                }
            };
            match read {
                Ok(StreamRead::Event(Event::Error(error))) => {
                    if self.has_lost_session(&error.error).await {
                        return Err(Unsent(LATER));
                    }
                    return Ok(Event::Error(error));
                }
                Ok(StreamRead::Event(event)) => return Ok(event),
                Ok(StreamRead::Nothing) => {}
                Ok(StreamRead::Cut { event_id, retry }) => {
                    *stream = CallStream::Cut {
                        event_id,
                        retry,
                        is_refused: false,
                    };
                }
                Ok(StreamRead::Beside(session_stream)) => {
                    *stream = CallStream::Beside(session_stream);
                }
                Ok(StreamRead::Unauthorized) => {
                    return Ok(Event::CredentialsRefused);
                }
                Ok(StreamRead::Resumed(messages)) => {
                    *stream = CallStream::Reading {
                        messages,
                        is_resumed: true,
                    };
                }
                Err(failure) => return Ok(Event::Failed(failure)),
            }
        }
    }

    /// Nothing runs that could be cancelled, and nothing must be sent after the cancel.
    fn pause(&mut self) {
        *self.underway.lock() = None;
    }

    /// Only after an answer is the session fit for another call.
    fn end(&mut self, stream: Option<CallStream>, last: &Event) {
        let is_answered = last.is_answer();
        if let Some(CallStream::Reading { messages, .. }) = stream
            && is_answered
        {
            self.origin.http.finish(messages.into_body());
        }
        *self.underway.lock() = None;
        // A call without an answer may still run and ask, so dropping the guard notes it as abandoned.
        match self.joined.take() {
            Some(joined) if is_answered => joined.answered(),
            _ => {}
        }
        let Some(lease) = self.lease.take() else {
            return;
        };
        match Fitness::after(last) {
            // A session that its call has to itself is closed, and one that is shared needs proof.
            Fitness::Unfit => return lease.session.doubt().raise(),
            Fitness::Doubtful => lease.session.doubt().raise(),
            Fitness::Fit => {}
        }
        self.give_back(lease);
    }
}

impl Drop for SessionCall {
    /// An answer that came on the session's own stream ends the call before its POST is answered.
    fn drop(&mut self) {
        if self.joined.as_ref().is_some_and(CallGuard::has_answer)
            && let Some(lease) = self.lease.take()
        {
            self.give_back(lease);
        }
    }
}

/// The outcome of reading on.
pub(super) enum StreamRead {
    Event(Event),
    Nothing,
    Cut {
        event_id: HeaderValue,
        retry: Option<Duration>,
    },
    Resumed(Box<Messages>),
    /// The server wants other credentials for the rest of the stream.
    Unauthorized,
    Beside(CancellationToken),
}

impl SessionCall {
    async fn read(
        &mut self,
        messages: &mut Messages,
        is_resumed: bool,
    ) -> Result<StreamRead, Failure> {
        let next = if is_resumed {
            let next = timeout(RESUMED_SILENCE, messages.next()).await;
            next.unwrap_or(Ok(None))
        } else {
            messages.next().await
        };
        let Some(message) = next? else {
            // Some servers answer on the session's own stream as long as there is one.
            if !self.has_begun
                && messages.is_empty_stream()
                && let Some(session_stream) = self.session_stream()
            {
                return Ok(StreamRead::Beside(session_stream));
            }
            // The stream ended without the answer. It can be resumed if an event had an id.
            let event_id = messages.last_event_id.clone();
            let event_id = event_id.filter(|_| messages.is_stream());
            return Ok(StreamRead::Cut {
                event_id: event_id.ok_or_else(|| messages.without_answer())?,
                retry: messages.retry,
            });
        };
        self.note_event_id(messages.last_event_id.as_ref());
        // An error that comes first may be a refusal of the session (`has_lost_session`).
        self.has_begun |= !matches!(message, ServerMessage::Primed | ServerMessage::Error { .. });
        let event = self.on_message(messages, message).await;
        Ok(event.map_or(StreamRead::Nothing, StreamRead::Event))
    }

    fn give_back(&self, lease: SessionLease) {
        match &self.request.pin {
            Some(pin) => pinned::hold(pin, lease),
            None => lease.give_back(),
        }
    }

    /// The session's own stream, if it is open.
    fn session_stream(&self) -> Option<CancellationToken> {
        self.lease.as_ref()?.session.calls().stream()
    }

    async fn on_message(
        &mut self,
        messages: &mut Messages,
        message: ServerMessage,
    ) -> Option<Event> {
        match about(message, &self.id, &self.request, &self.origin) {
            About::This(event) => Some(event),
            About::Asked { id, method, params } => self.on_request(&id, &method, params).await,
            About::Another => {
                messages.note_stray();
                None
            }
            About::Nothing => None,
        }
    }

    async fn on_request(
        &self,
        id: &str,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Option<Event> {
        let declared = Object::parse(&self.key.declared).unwrap_or_default();
        // raincheck does not know what a client declared on its own session, so every question goes to the
        // client.
        let is_borrowed = self.is_borrowed();
        let may_ask = |kind: InputKind| is_borrowed || declared.contains(kind.capability());
        match question(id, method, params, may_ask) {
            Ok(question) => Some(Event::Question(question)),
            Err(answer) => {
                if let Some(lease) = &self.lease {
                    // A server that cannot be told will notice by itself.
                    let _ = lease.session.tell(response(id, &answer)).await;
                }
                None
            }
        }
    }
}
