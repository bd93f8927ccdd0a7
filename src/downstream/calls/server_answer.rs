//! The answer of a server over Streamable HTTP to one call, also behind a stream that broke, where the server
//! keeps its events.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::value::RawValue;

use super::item::StreamItem;
use crate::base::unfold::Unfold;
use crate::mcp::answer;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Object;
use crate::mcp::scan::with_finite;
use crate::mcp::sse;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::relay::{self, Answering, Relayed, ResumePoint, error_of};
use crate::upstream::wrapped::Upstream;

pub(in crate::downstream) type Relaying = BoxFuture<'static, Result<Relayed, Failure>>;

/// The point up to which the answer was read.
pub(in crate::downstream) enum ReadState {
    Waiting(Relaying),
    Reading(Box<Answering>),
    /// The stream ended before the answer. `lost`: the error if the server does not resume the stream.
    Cut {
        point: ResumePoint,
        lost: Reason,
    },
    Answered,
}

/// The request to which a server answers.
pub(in crate::downstream) struct CallAtServer {
    pub(in crate::downstream) upstream: Arc<Upstream>,
    pub(in crate::downstream) id: Box<RawValue>,
    /// The largest message that the server may send.
    pub(in crate::downstream) bytes_max: usize,
}

impl CallAtServer {
    /// Begins to pass the request on. Nothing is sent until the future is polled.
    pub(in crate::downstream) fn relay(&self, parts: Parts, body: Bytes) -> Relaying {
        let (upstream, bytes_max) = (Arc::clone(&self.upstream), self.bytes_max);
        let body = RequestBody::Ready(body);
        async move { upstream.relay(parts, body, bytes_max).await }.boxed()
    }

    /// Requests the rest of a stream that was cut. `None`: it cannot be had.
    async fn rest(&self, parts: Option<&Parts>, point: &ResumePoint) -> Option<Box<Answering>> {
        let rest = self.upstream.relay_rest(parts?, point, self.bytes_max);
        rest.await
    }
}

/// The answer of a server to one call.
pub(in crate::downstream) struct ServerAnswer {
    call: CallAtServer,
    /// The head of a request of the client on the call's session. `None`: the stream cannot be resumed once it is cut, as
    /// no modern stream can.
    resumes_with: Option<Parts>,
    state: ReadState,
    /// The server's last event id.
    event_id: Option<String>,
}

impl ServerAnswer {
    pub(in crate::downstream) fn new(
        call: CallAtServer,
        resumes_with: Option<Parts>,
        state: ReadState,
    ) -> Self {
        Self {
            call,
            resumes_with,
            state,
            event_id: None,
        }
    }

    /// Returns the server's messages, and an error under the client's own id where the server never answers.
    pub(in crate::downstream) fn items(self) -> BoxStream<'static, StreamItem> {
        self.into_stream()
    }
}

impl Unfold for ServerAnswer {
    type Item = StreamItem;

    async fn next(&mut self) -> Option<StreamItem> {
        loop {
            // `Answered` stays where a step gives the last item. The stream keeps this future, so no step is cut short.
            match std::mem::replace(&mut self.state, ReadState::Answered) {
                ReadState::Answered => return None,
                ReadState::Reading(answering) => {
                    if let Some(item) = self.read(answering).await {
                        return Some(item);
                    }
                }
                ReadState::Cut { point, lost } => {
                    let (call, parts) = (&self.call, self.resumes_with.as_ref());
                    let Some(rest) = call.rest(parts, &point).await else {
                        return Some(self.failed(&unknown(lost)));
                    };
                    // If this stream breaks before its first id, it is resumed from the same event again.
                    self.event_id = Some(point.event_id);
                    self.state = ReadState::Reading(rest);
                }
                ReadState::Waiting(relaying) => match relaying.await {
                    Ok(Relayed::Answer(answering)) => self.state = ReadState::Reading(answering),
                    // The server's words may contain the credentials, which must not come into a record.
                    Ok(Relayed::Passed(refusal)) if is_unauthorized(&refusal) => {
                        let reason = Reason::UpstreamUnauthorized;
                        return Some(self.failed(&Failure::new(reason, SideEffect::None)));
                    }
                    Ok(Relayed::Passed(refusal)) => {
                        let error = error_of(refusal).await;
                        return Some(self.refused(&error));
                    }
                    Err(failure) => return Some(self.failed(&failure)),
                },
            }
        }
    }
}

impl ServerAnswer {
    /// `None`: the item is nothing for the client, and reading goes on.
    async fn read(&mut self, mut answering: Box<Answering>) -> Option<StreamItem> {
        let is_stream = answering.is_stream();
        match answering.next().await {
            Ok(Some(said)) if is_stream => self.event(answering, said),
            Ok(Some(said)) => {
                self.call.upstream.finish(*answering);
                Some(self.body(said.text))
            }
            Ok(None) => {
                // Without an event id the server cannot be asked for the rest of the stream.
                let Some(event_id) = self.event_id.clone() else {
                    return Some(self.failed(&unknown(Reason::UpstreamReset)));
                };
                let retry = answering.retry();
                self.state = ReadState::Cut {
                    point: ResumePoint { event_id, retry },
                    lost: Reason::UpstreamReset,
                };
                None
            }
            Err(failure) => Some(self.failed(&failure)),
        }
    }

    fn event(&mut self, answering: Box<Answering>, said: relay::RawMessage) -> Option<StreamItem> {
        let relay::RawMessage {
            text,
            event_id,
            is_named,
            other,
        } = said;
        if event_id.is_some() && self.resumes_with.is_some() {
            self.event_id.clone_from(&event_id);
        }
        if let Some(other) = other {
            self.state = ReadState::Reading(answering);
            let event = sse::encode(&other);
            return Some(StreamItem::Other { event, event_id });
        }
        let kind = kind_of(&text, &self.call.id);
        if kind == MessageKind::Answer {
            self.call.upstream.finish(*answering);
            return Some(StreamItem::Answer(text));
        }
        self.state = ReadState::Reading(answering);
        // Such an event brings only an id, from which the client can resume the stream.
        if text.is_empty() {
            return event_id.map(StreamItem::EventId);
        }
        if kind == MessageKind::None {
            // A client that tried to read it would fail in the same way without raincheck.
            let event = sse::unread(text, is_named, None);
            return Some(StreamItem::Other { event, event_id });
        }
        let json = text;
        Some(StreamItem::Message { json, event_id })
    }

    /// A body is one message, and so the answer. A server that could not read the id has none in it.
    fn body(&self, text: String) -> StreamItem {
        if is_answer(&text, &self.call.id) {
            return StreamItem::Answer(text);
        }
        let body = Object::parse(&text).ok();
        let error = body.as_ref().and_then(|body| body.get("error"));
        error.map_or_else(
            || self.failed(&unknown(Reason::UpstreamInvalid)),
            |error| self.refused(error),
        )
    }

    fn failed(&self, failure: &Failure) -> StreamItem {
        self.refused(&failure.to_error().to_raw())
    }

    fn refused(&self, error: &RawValue) -> StreamItem {
        StreamItem::Answer(envelope::error(self.call.id.get(), error.get()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Answer,
    /// Any other JSON-RPC message.
    Message,
    /// No JSON-RPC message.
    None,
}

/// Reads what a text is for the request with that id.
fn kind_of(text: &str, id: &RawValue) -> MessageKind {
    let kind_in = |text: &str| {
        let message = Object::parse(text).ok()?;
        Some(if answer::is_answer(&message, id) {
            MessageKind::Answer
        } else if message.contains("method") || answer::is_any_answer(&message) {
            MessageKind::Message
        } else {
            MessageKind::None
        })
    };
    // Some clients read what is JSON but for NaN.
    kind_in(text)
        .or_else(|| kind_in(&with_finite(text)?))
        .unwrap_or(MessageKind::None)
}

/// Returns `true` if a text is the response to the request with that id.
pub(in crate::downstream) fn is_answer(message: &str, id: &RawValue) -> bool {
    kind_of(message, id) == MessageKind::Answer
}

fn is_unauthorized(refusal: &Response<ResponseBody>) -> bool {
    let status = refusal.status();
    status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN
}

fn unknown(reason: Reason) -> Failure {
    Failure::new(reason, SideEffect::Unknown)
}
