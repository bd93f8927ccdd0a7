//! One call on a session, from its sending to its answer.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use super::super::{Transport, Unsent, Untaken};
use super::control::Current;
use crate::mcp::error::Failure;
use crate::mcp::input::Kind;
use crate::mcp::json::Object;
use crate::upstream::heard::{Message, Messages};
use crate::upstream::message::{About, about, question, response};
use crate::upstream::origin::Origin;
use crate::upstream::pinned;
use crate::upstream::port::{Event, Outgoing};
use crate::upstream::request_id::RequestId;
use crate::upstream::session_calls::CallGuard;
use crate::upstream::sessions::{Key, Lease, Sessions};

/// A resumed stream that says nothing for so long is asked for once more: some servers tell what was
/// missed, and nothing of what comes after.
const RESUMED_SILENCE: Duration = Duration::from_secs(10);

pub(super) struct SessionCall {
    pub(super) origin: Arc<Origin>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) request: Outgoing,
    pub(super) key: Key,
    pub(super) lease: Option<Lease>,
    pub(super) underway: Current,
    pub(super) taken: watch::Sender<bool>,
    pub(super) id: RequestId,
    pub(super) has_told_resumable: bool,
    /// Where the session's own stream puts what it says to this call, while it is joined.
    pub(super) beside: mpsc::Sender<Event>,
    pub(super) joined: Option<CallGuard>,
}

/// The stream of the call.
pub(super) enum Stream {
    Reading {
        messages: Box<Messages>,
        /// What is read is the rest of a stream that was cut.
        is_resumed: bool,
    },
    /// The call runs on at the server, and its events wait behind this one.
    Cut {
        event_id: HeaderValue,
        retry: Option<Duration>,
    },
}

impl Transport for SessionCall {
    type Open = Stream;

    async fn send(&mut self) -> Result<Stream, Untaken> {
        Ok(Stream::Reading {
            messages: self.post().await?,
            is_resumed: false,
        })
    }

    async fn next(&mut self, stream: &mut Stream) -> Result<Event, Unsent> {
        loop {
            // After the message that came with it was handed over, not before: whoever resumes
            // there never hears of it.
            if self.has_become_resumable() {
                return Ok(Event::Resumable);
            }
            let read = match stream {
                Stream::Reading {
                    messages,
                    is_resumed,
                } => self.read(messages, *is_resumed).await,
                Stream::Cut { event_id, retry } => {
                    let resumed = self.resume(event_id, *retry).await;
                    resumed.map(Read::Resumed)
                }
            };
            match read {
                Ok(Read::Event(event)) => return Ok(event),
                Ok(Read::Nothing) => {}
                Ok(Read::Cut { event_id, retry }) => *stream = Stream::Cut { event_id, retry },
                Ok(Read::Resumed(messages)) => {
                    *stream = Stream::Reading {
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
    fn end(&mut self, stream: Option<Stream>, last: &Event) {
        let is_answered = last.is_answer();
        if let Some(Stream::Reading { messages, .. }) = stream
            && is_answered
        {
            self.origin.http.finish(messages.into_body());
        }
        *self.underway.lock() = None;
        match self.joined.take() {
            Some(joined) if is_answered => joined.answered(),
            _ => {}
        }
        if let Some(lease) = self.lease.take()
            && is_answered
        {
            match &self.request.pin {
                Some(pin) => pinned::hold(pin, lease),
                None => lease.give_back(),
            }
        }
    }
}

/// What came of reading on.
enum Read {
    Event(Event),
    Nothing,
    Cut {
        event_id: HeaderValue,
        retry: Option<Duration>,
    },
    Resumed(Box<Messages>),
}

impl SessionCall {
    async fn read(&mut self, messages: &mut Messages, is_resumed: bool) -> Result<Read, Failure> {
        let next = if is_resumed {
            let next = tokio::time::timeout(RESUMED_SILENCE, messages.next()).await;
            next.unwrap_or(Ok(None))
        } else {
            messages.next().await
        };
        let Some(message) = next? else {
            // The stream ended without the answer: it can be come back to where an event had an id.
            let event_id = messages.last_event_id.clone();
            let event_id = event_id.filter(|_| messages.is_stream());
            return Ok(Read::Cut {
                event_id: event_id.ok_or_else(|| messages.without_answer())?,
                retry: messages.retry,
            });
        };
        self.note_event_id(messages.last_event_id.as_ref());
        let event = self.on_message(messages, message).await;
        Ok(event.map_or(Read::Nothing, Read::Event))
    }

    async fn on_message(&mut self, messages: &mut Messages, message: Message) -> Option<Event> {
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
        let declared = Object::parse(&self.key.capabilities).unwrap_or_default();
        // What a client declared on its own session is between the server and it.
        let is_borrowed = self.is_borrowed();
        let may_ask = |kind: Kind| is_borrowed || declared.contains(kind.capability());
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
