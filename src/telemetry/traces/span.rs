//! A span that has ended. Its content is borrowed: it is written at once, in the form in which it is exported.

use std::cell::Cell;

use super::attributes::{Key, write_number};
use super::keys;
use crate::mcp::trace_id::{SpanId, TraceId};

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
    #[inline]
    pub(super) fn say(&mut self, key: &Key, text: &str) {
        if !text.is_empty() {
            key.write(&mut self.attributes, cut(text));
        }
    }

    pub(super) fn count(&mut self, key: &str, number: u64) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        write_number(&mut self.attributes, key, number);
    }

    /// Leaves the room of the attributes to the next span.
    pub(super) fn leave_room(self) {
        let mut room = self.attributes;
        // A span without attributes has no room to leave, and must not replace the room that is there.
        if (ATTRIBUTES_BYTES..=KEPT_BYTES_MAX).contains(&room.capacity()) {
            room.clear();
            ROOM.set(room);
        }
    }

    /// Sets how the operation ended: the words of the conventions, empty where all went well.
    pub(super) fn ended(&mut self, kind: &str, code: &str) {
        self.is_error = !kind.is_empty();
        self.say(&keys::ERROR, kind);
        self.say(&keys::CODE, code);
    }
}

/// Room for the attributes of a usual span.
const ATTRIBUTES_BYTES: usize = 320;

/// Room that is larger is not kept.
const KEPT_BYTES_MAX: usize = 4 << 10;

thread_local! {
    /// The room that the last span of this thread left, so that not each span needs memory of its own.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Room for the attributes of a span.
pub(super) fn room() -> Vec<u8> {
    let mut room = ROOM.take();
    room.reserve(ATTRIBUTES_BYTES);
    room
}

#[inline]
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
