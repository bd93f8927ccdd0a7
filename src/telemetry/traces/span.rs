//! A span that has ended. What it says is borrowed: it is written at once, in the form in which it is exported.

use super::attributes::{write_number, write_text};
use crate::mcp::trace_context::{SpanId, TraceId};

/// Texts that clients and servers choose are cut.
const CHARS_MAX: usize = 128;

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal,
    /// raincheck answers a client.
    Server,
    /// raincheck asks the server.
    Client,
}

/// A span that has ended. No part of it is an argument, a result or a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span<'s> {
    pub(super) trace: TraceId,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) state: Option<&'s str>,
    /// The parts of the name, one after the other.
    pub(super) name: [&'s str; 3],
    pub(super) kind: SpanKind,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// As they are exported.
    pub(super) attributes: Vec<u8>,
    /// A span of another trace, or of this one, that the span is about.
    pub(super) link: Option<(TraceId, SpanId)>,
    pub(super) is_error: bool,
}

impl Span<'_> {
    /// Adds an attribute, unless the text is empty.
    pub(super) fn say(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            write_text(&mut self.attributes, key, cut(text));
        }
    }

    pub(super) fn count(&mut self, key: &str, number: u64) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        write_number(&mut self.attributes, key, number);
    }

    /// Says how the operation ended: the words of the conventions, empty where all went well.
    pub(super) fn ended(&mut self, kind: &str, code: &str) {
        self.is_error = !kind.is_empty();
        self.say("error.type", kind);
        self.say("rpc.response.status_code", code);
    }
}

pub(super) fn cut(text: &str) -> &str {
    // Nearly all texts.
    if text.len() <= CHARS_MAX {
        return text;
    }
    text.char_indices()
        .nth(CHARS_MAX)
        .and_then(|(end, _)| text.get(..end))
        .unwrap_or(text)
}
