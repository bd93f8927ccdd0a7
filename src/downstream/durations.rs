//! Measures a request of a client until its answer was sent.

use std::sync::Arc;

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::body::Body;
use super::inbound::request::Inbound;
use super::inbound::requester::Piped;
use super::traced::version;
use crate::mcp::version::Era;
use crate::telemetry::operation_ending::OperationEnding;
use crate::telemetry::operation_series::Side;
use crate::telemetry::operations::{self, Operation};
use crate::telemetry::traces::SpanGuard;

/// A message of a client that is being answered. Boxed, because the future of each request has room for it.
#[derive(Debug, Clone)]
pub(super) struct Asked(Arc<Measured>);

/// A response, and the measurement of its request.
pub(super) type Answered = (Response<Body>, Option<Asked>);

/// Shared, because it may be in the extensions of a response, which can be cloned.
#[derive(Debug)]
struct Measured {
    operation: Option<Operation>,
    span: Option<SpanGuard>,
}

impl Drop for Measured {
    /// Counts a request whose client left before its answer began. A span ends by itself.
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            operation.end(OperationEnding::Cancelled);
        }
    }
}

impl Asked {
    /// `None`: the durations are not read, or the message is an answer of the client's. `span`: the span of the
    /// request, where its trace is recorded.
    pub(super) fn begin(
        parts: &Parts,
        message: &Inbound<'_>,
        era: Era,
        span: Option<SpanGuard>,
    ) -> Option<Self> {
        // Without a reader of the durations the texts of the message are not looked at.
        let operation = if operations::are_measured() {
            operation(parts, message, era)
        } else {
            None
        };
        let is_any = operation.is_some() || span.is_some();
        is_any.then(|| Self(Arc::new(Measured { operation, span })))
    }

    /// The response, with its measurement in its extensions.
    pub(super) fn on(self, mut response: Response<Body>) -> Response<Body> {
        response.extensions_mut().insert(self);
        response
    }

    /// The measurement in the extensions of this response, whose body goes out from now on.
    pub(super) fn of(response: &mut Response<Body>) -> Option<MeasuredAnswer> {
        let asked = response.extensions_mut().remove::<Self>()?;
        asked.answered(response)
    }

    /// The measurement of this response, whose body goes out from now on.
    pub(super) fn answered(self, response: &Response<Body>) -> Option<MeasuredAnswer> {
        let Self(measured) = self;
        let mut measured = Arc::into_inner(measured)?;
        let (operation, span) = (measured.operation.take(), measured.span.take());
        let status = response.status();
        let is_ours = !matches!(response.body(), Body::Passed { .. } | Body::Empty);
        // The server's own bytes are read where somebody asked for a trace: a tool that fails must not look well.
        // So is an answer that alone can make its tool a label: many names that may be invented were called before.
        let is_coded = response.headers().contains_key(CONTENT_ENCODING);
        let may_prove = !is_ours
            && status.is_success()
            && !is_coded
            && operation.as_ref().is_some_and(Operation::needs_proof);
        let is_read = is_ours || span.is_some() || may_prove;
        let says_events = || {
            let kind = response.headers().get(CONTENT_TYPE);
            kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
        };
        let source = match (is_ours, may_prove) {
            (true, _) => AnswerSource::Ours,
            (false, true) => AnswerSource::Proof,
            (false, false) => AnswerSource::Server,
        };
        Some(MeasuredAnswer {
            operation,
            span,
            status,
            is_stream: matches!(response.body(), Body::Events(_))
                || (!is_ours && is_read && says_events()),
            source,
            is_read,
            ending: None,
        })
    }
}

fn operation(parts: &Parts, message: &Inbound<'_>, era: Era) -> Option<Operation> {
    let method = message.method()?;
    let tool = message.params().and_then(|params| params.get_str("name"));
    let version = version(parts, era);
    let is_piped = parts.extensions.get::<Piped>().is_some();
    let transport = if is_piped { "pipe" } else { "tcp" };
    Operation::begin(Side::Server, method, tool.as_deref(), version, transport)
}

/// Whose the bytes of an answer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerSource {
    Ours,
    Server,
    /// The server's. A good answer shows that the server has the tool.
    Proof,
}

/// An answer on its way. Dropped, it is counted.
#[derive(Debug)]
pub(super) struct MeasuredAnswer {
    operation: Option<Operation>,
    span: Option<SpanGuard>,
    status: StatusCode,
    /// `true` if the answer is known to be a stream. For an answer that is not read, it need not be known.
    is_stream: bool,
    source: AnswerSource,
    is_read: bool,
    ending: Option<OperationEnding>,
}

impl MeasuredAnswer {
    /// Looks at the answer of a client that reads messages, and not bytes.
    pub(super) fn saw_answer(&mut self, answer: &str) {
        self.ending = self
            .ending
            .or_else(|| OperationEnding::of_message(answer.as_bytes()));
    }

    /// Looks at bytes of the answer: a whole one, or an event.
    pub(super) fn saw(&mut self, bytes: &[u8]) {
        if !self.is_read || self.ending.is_some() {
            return;
        }
        if !self.is_stream {
            self.ending = OperationEnding::of_answer(bytes);
            return;
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let data: String = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        // A comment, or the id that a stream begins with.
        if !data.is_empty() {
            self.ending = OperationEnding::of_message(data.as_bytes());
        }
    }

    /// Looks at an event of raincheck's own that ends a stream of the server's.
    pub(super) fn saw_own(&mut self, event: &[u8]) {
        self.is_read = true;
        self.is_stream = true;
        self.source = AnswerSource::Server;
        self.saw(event);
    }

    fn ending(&self) -> OperationEnding {
        match self.ending {
            // An error status decides also where the body looks like a good answer or was not read.
            Some(OperationEnding::Good) | None if self.status.as_u16() >= 400 => {
                OperationEnding::Status(self.status.as_u16())
            }
            Some(ending) => ending,
            // raincheck's own streams end with an answer, so the client left. A server's answer may pass unread.
            None if self.is_stream && self.source == AnswerSource::Ours => {
                OperationEnding::Cancelled
            }
            None => OperationEnding::Good,
        }
    }
}

impl Drop for MeasuredAnswer {
    fn drop(&mut self) {
        let ending = self.ending();
        if let Some(operation) = &self.operation {
            let is_proof = self.source == AnswerSource::Proof;
            if is_proof && self.ending == Some(OperationEnding::Good) {
                // Before the count, so that this call is already counted under its tool.
                operation.prove();
            }
            operation.end(ending);
        }
        if let Some(span) = self.span.take() {
            span.end(ending);
        }
    }
}
