//! A span that has ended. What it says is borrowed: it is written at once, in the form in which it is exported.

use std::borrow::Cow;

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

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SpanValue<'s> {
    Text(Cow<'s, str>),
    Number(i64),
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
    pub(super) attributes: Vec<(&'static str, SpanValue<'s>)>,
    /// A span of another trace, or of this one, that the span is about.
    pub(super) link: Option<(TraceId, SpanId)>,
    pub(super) is_error: bool,
}

impl<'s> Span<'s> {
    /// Adds an attribute, unless the text is empty.
    pub(super) fn say(&mut self, key: &'static str, text: impl Into<Cow<'s, str>>) {
        let text = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(cut(text)),
            Cow::Owned(mut text) => {
                text.truncate(cut(&text).len());
                Cow::Owned(text)
            }
        };
        if !text.is_empty() {
            self.attributes.push((key, SpanValue::Text(text)));
        }
    }

    pub(super) fn count(&mut self, key: &'static str, number: u64) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.attributes.push((key, SpanValue::Number(number)));
    }

    /// Says how the operation ended: the words of the conventions, empty where all went well.
    pub(super) fn ended(&mut self, kind: impl Into<Cow<'s, str>>, code: impl Into<Cow<'s, str>>) {
        let kind = kind.into();
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
