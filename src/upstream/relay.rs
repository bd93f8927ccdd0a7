//! A legacy client's request passed on as it is, with an answer that is read message by message.

use bytes::Bytes;
use hyper::Response;
use hyper::header::ACCEPT_ENCODING;
use hyper::http::request;
use hyper::http::response::Parts;
use serde_json::value::RawValue;

use super::heard::{self, Heard, INVALID, LATER, Messages};
use super::http::{RequestBody, ResponseBody};
use super::server::Server;
use super::wrapped::Upstream;
use crate::mcp::error::Failure;

/// What the server made of it.
#[derive(Debug)]
pub enum Relayed {
    /// No messages, or a refusal: for the client as it is.
    Passed(Response<ResponseBody>),
    Answer(Box<Answering>),
}

/// An answer as it comes.
#[derive(Debug)]
pub struct Answering {
    pub head: Parts,
    messages: Messages,
}

/// One event of a stream, or a body of JSON.
#[derive(Debug)]
pub struct Said {
    /// The message. Empty in events that only say where to resume.
    pub text: String,
    /// The server's own id of the event.
    pub event_id: Option<String>,
}

impl Answering {
    /// Whether it comes as events; else there is one message.
    pub fn is_stream(&self) -> bool {
        self.messages.is_stream()
    }

    /// What a stream says first, which stays unsaid: the message, and whether its event has an id.
    /// `None` at the end. Cancel safe.
    pub async fn first(&mut self) -> Result<Option<(&str, bool)>, Failure> {
        self.messages.peek().await
    }

    /// The answer as it comes, byte for byte: the head, what of the body was read, and the rest.
    /// Only while nothing was taken from it.
    pub fn untouched(self) -> (Parts, Bytes, ResponseBody) {
        let (begun, rest) = self.messages.into_unread();
        (self.head, begun.into(), rest)
    }

    /// `None` at the end of the body, however it ended for a stream. Cancel safe for streams.
    pub async fn next(&mut self) -> Result<Option<Said>, Failure> {
        self.messages.next_said().await
    }
}

/// What a refusal says, as the error of a JSON-RPC response: for a client that has a status already.
pub async fn error_of(refusal: Response<ResponseBody>) -> Box<RawValue> {
    let failure = match heard::judge(refusal, 0).await {
        Heard::Error(error) => return error.error,
        Heard::Refused { failure, .. } => failure,
        Heard::Later(_) => LATER,
        Heard::Messages(_) => INVALID,
    };
    failure.to_error().to_raw()
}

impl Upstream {
    /// Everything that counts was said: the connection can be used again.
    pub fn finish(&self, answering: Answering) {
        if let Server::Web(web) = &self.server {
            web.origin.http.finish(answering.messages.into_body());
        }
    }

    /// Passes a client's POST on, and reads what it is answered with.
    pub async fn relay(
        &self,
        mut parts: request::Parts,
        body: RequestBody,
        message_bytes_max: usize,
    ) -> Result<Relayed, Failure> {
        // What is compressed cannot be read here.
        parts.headers.remove(ACCEPT_ENCODING);
        let response = self.pass(parts, body).await?;
        Ok(match Messages::try_of(response, message_bytes_max) {
            Ok((head, messages)) => Relayed::Answer(Box::new(Answering { head, messages })),
            Err(response) => Relayed::Passed(*response),
        })
    }
}
