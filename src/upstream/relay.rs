//! Passes a legacy client's request on as it is, reads the answer message by message, and resumes the stream if
//! the server keeps its events.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue};
use hyper::http::request;
use hyper::http::response::Parts;
use hyper::{Method, Response};
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::base::retry_after;
use crate::mcp::error::Failure;
use crate::mcp::headers::LAST_EVENT_ID;
use crate::upstream::failures::INVALID;
use crate::upstream::http::hop_headers;
use crate::upstream::http::origin::{BOTH, EVENTS, JSON, NO_CODING};
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::http_response;
pub use crate::upstream::http_response::RawMessage;
use crate::upstream::http_response::{Messages, ResponseKind};
use crate::upstream::reconnect::{Reconnect, is_gone};
use crate::upstream::server::Server;
use crate::upstream::wrapped::Upstream;

/// The time after which a resumed stream that sends nothing is requested again: some servers send what was missed,
/// and nothing of what comes after.
const RESUMED_SILENCE: Duration = Duration::from_secs(10);

/// The server's response to a request that was passed on.
#[derive(Debug)]
pub enum Relayed {
    /// A refusal, or a response without messages. The client gets it as it is.
    Passed(Response<ResponseBody>),
    Answer(Box<Answering>),
}

/// An answer as it comes.
#[derive(Debug)]
pub struct Answering {
    pub head: Parts,
    messages: Messages,
    is_resumed: bool,
}

impl Relayed {
    /// A response as far as it has come.
    pub fn of(response: Response<ResponseBody>, message_bytes_max: usize) -> Self {
        match Messages::try_of(response, message_bytes_max) {
            Ok((head, messages)) => Self::Answer(Box::new(Answering {
                head,
                messages,
                is_resumed: false,
            })),
            Err(response) => Self::Passed(*response),
        }
    }
}

/// From where a stream can be resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumePoint {
    /// The server's own id of the last event.
    pub event_id: String,
    /// The time that the server wants its client to wait.
    pub retry: Option<Duration>,
}

impl Answering {
    /// Returns `true` if the answer is an event stream. If not, there is one message.
    pub fn is_stream(&self) -> bool {
        self.messages.is_stream()
    }

    /// Looks at the first event without taking it: the message, and whether its event has an id. `None` at the
    /// end. Cancel safe.
    pub async fn first(&mut self) -> Result<Option<(&str, bool)>, Failure> {
        self.messages.peek().await
    }

    /// The answer byte for byte: the head, what was read of the body, and the rest. Only before the first
    /// message was taken.
    pub fn untouched(self) -> (Parts, Bytes, ResponseBody) {
        let (begun, rest) = self.messages.into_unread();
        (self.head, begun.into(), rest)
    }

    /// The next message. `None` at the end of the body, also if the stream was cut. Cancel safe for streams.
    pub async fn next(&mut self) -> Result<Option<RawMessage>, Failure> {
        if !self.is_resumed {
            return self.messages.next_raw().await;
        }
        let next = timeout(RESUMED_SILENCE, self.messages.next_raw()).await;
        next.unwrap_or(Ok(None))
    }

    /// The pause that the server asks for before the stream is requested again.
    pub fn retry(&self) -> Option<Duration> {
        self.messages.retry
    }
}

/// A refusal as the error of a JSON-RPC response, for a client that was sent a status already.
pub async fn error_of(refusal: Response<ResponseBody>) -> Box<RawValue> {
    // The bound is for the messages of a success, and a refusal has none.
    let failure = match http_response::classify_response(refusal, 0).await {
        ResponseKind::Error(error) => return error.error,
        ResponseKind::Refused { failure, .. } => failure,
        ResponseKind::Later(later) => later.failure,
        ResponseKind::Messages(_) => INVALID,
    };
    failure.to_error().to_raw()
}

impl Upstream {
    /// The answer is complete, so the connection can be used again.
    pub fn finish(&self, answering: Answering) {
        if let Server::Http(http_server) = &self.server {
            http_server
                .origin
                .http
                .finish(answering.messages.into_body());
        }
    }

    /// Passes a client's POST on, and reads the answer.
    pub async fn relay(
        &self,
        mut parts: request::Parts,
        body: RequestBody,
        message_bytes_max: usize,
    ) -> Result<Relayed, Failure> {
        // raincheck reads the messages of this answer, so it asks for no coding of the body.
        parts.headers.insert(ACCEPT_ENCODING, NO_CODING);
        let response = self.pass(Box::new(parts), body).await?;
        Ok(Relayed::of(response, message_bytes_max))
    }

    /// Posts a message of raincheck's with the client's headers, except for those that describe the client's
    /// own body.
    pub async fn tell_as(
        &self,
        mut parts: request::Parts,
        message: String,
    ) -> Result<Response<ResponseBody>, Failure> {
        hop_headers::strip_body(&mut parts.headers);
        parts.method = Method::POST;
        parts.headers.insert(CONTENT_TYPE, JSON);
        parts.headers.insert(ACCEPT, BOTH);
        self.pass(Box::new(parts), RequestBody::json(message)).await
    }

    /// Requests the rest of a stream with the client's headers, until the server has it; the caller has a
    /// deadline. `None`: the rest cannot be had. Cancel safe: the request can be begun again from the same
    /// point.
    pub async fn relay_rest(
        &self,
        parts: &request::Parts,
        point: &ResumePoint,
        message_bytes_max: usize,
    ) -> Option<Box<Answering>> {
        let parts = resuming(parts, &point.event_id)?;
        let mut reconnect = Reconnect::to_answer(point.retry);
        loop {
            // Before the first attempt, too: `retry` of the stream that was cut may ask for this pause.
            tokio::time::sleep(reconnect.pause()).await;
            let again = Box::new(parts.clone());
            // The server may be away for a moment only. The caller's deadline ends the attempts.
            let Ok(response) = self.pass(again, RequestBody::empty()).await else {
                continue;
            };
            let status = response.status();
            reconnect.asked(retry_after::pause(response.headers()));
            match Messages::try_of(response, message_bytes_max) {
                Ok((head, messages)) if messages.is_stream() => {
                    return Some(Box::new(Answering {
                        head,
                        messages,
                        is_resumed: true,
                    }));
                }
                // A body that is no event stream cannot be the rest of one.
                Ok(_) => return None,
                Err(_) if is_gone(status) => return None,
                // Another stream of the session is still open at the server, or a gateway is away for a moment.
                Err(_) => {}
            }
        }
    }
}

fn resuming(parts: &request::Parts, event_id: &str) -> Option<request::Parts> {
    let mut parts = parts.clone();
    parts.method = Method::GET;
    hop_headers::strip_body(&mut parts.headers);
    parts.headers.insert(ACCEPT_ENCODING, NO_CODING);
    parts.headers.insert(ACCEPT, EVENTS);
    let event_id = HeaderValue::try_from(event_id).ok()?;
    parts.headers.insert(LAST_EVENT_ID, event_id);
    Some(parts)
}
