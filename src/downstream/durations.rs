//! Measures a request of a client until its answer was sent.

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::body::Body;
use super::inbound::request::Inbound;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::version::{Era, MODERN};
use crate::telemetry::operations::{Ending, Operation, Side};

/// A message of a client that is being answered; in the extensions of its response. Boxed, because the future of each request
/// has room for it.
#[derive(Debug, Clone)]
pub(super) struct Asked(Box<Operation>);

impl Asked {
    /// `None`: nobody reads the durations, or the message is an answer of the client's.
    pub(super) fn begin(parts: &Parts, message: &Inbound<'_>, era: Era) -> Option<Self> {
        let method = message.members()?.get_str("method")?;
        let tool = message.params().and_then(|params| params.get_str("name"));
        let said = parts.headers.get(PROTOCOL_VERSION);
        let said = said.and_then(|version| version.to_str().ok());
        let version = match era {
            Era::Modern => MODERN,
            Era::Legacy => said.unwrap_or_default(),
        };
        Operation::begin(Side::Server, &method, tool.as_deref(), version, "tcp")
            .map(|operation| Self(Box::new(operation)))
    }

    pub(super) fn on(self, mut response: Response<Body>) -> Response<Body> {
        response.extensions_mut().insert(self);
        response
    }

    /// The measurement of this response, whose body goes out from now on.
    pub(super) fn of(response: &mut Response<Body>) -> Option<Answering> {
        let Self(operation) = response.extensions_mut().remove::<Self>()?;
        let status = response.status();
        let is_read = !matches!(response.body(), Body::Passed { .. } | Body::Empty);
        Some(Answering {
            operation,
            status,
            is_stream: matches!(response.body(), Body::Events(_)),
            is_read,
            ending: None,
        })
    }
}

/// An answer on its way. Dropped, it is counted.
#[derive(Debug)]
pub(super) struct Answering {
    operation: Box<Operation>,
    status: StatusCode,
    is_stream: bool,
    /// Whether the bytes are raincheck's own.
    is_read: bool,
    ending: Option<Ending>,
}

impl Answering {
    /// Looks at bytes of the answer: a whole one, or an event.
    pub(super) fn saw(&mut self, bytes: &[u8]) {
        if !self.is_read || self.ending.is_some() {
            return;
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        self.ending = if self.is_stream {
            let data: String = text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .collect();
            // A comment, or the id that a stream begins with.
            (!data.is_empty())
                .then(|| Ending::of_message(&data))
                .flatten()
        } else {
            Ending::of_message(text)
        };
    }

    fn ending(&self) -> Ending {
        match self.ending {
            Some(Ending::Good) | None if self.status.as_u16() >= 400 => {
                Ending::Status(self.status.as_u16())
            }
            Some(ending) => ending,
            None if self.is_stream && self.is_read => Ending::Cancelled,
            None => Ending::Good,
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.operation.end(self.ending());
    }
}
