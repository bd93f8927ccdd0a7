//! The part of a stream that has passed so far.
//!
//! An event that passes is only copied at first. Many events are read together, at the latest when the position in the stream
//! is asked for. Of several progress messages the newest counts, so most events are never parsed.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::keepalive::Keepalive;
use crate::mcp::answer::{is_answer, is_any_answer};
use crate::mcp::json::Object;
use crate::mcp::sse::Decoder;

/// The number of bytes that are copied before they are read.
const UNREAD_MAX: usize = 4 * 1024;

/// A larger event is an answer, behind which there is no progress; or a message so large that what follows is not read
/// either.
pub(super) const EVENT_BYTES_MAX: usize = 64 * 1024;

/// The time in which bytes that follow other bytes count as having come with them.
const TOGETHER: Duration = Duration::from_millis(50);

/// Where a stream is, as far as was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    BetweenEvents,
    WithinEvent,
    /// The answer has passed, or the stream cannot be read.
    Over,
}

/// The events that passed.
pub(super) struct PassedEvents {
    /// The bytes that passed since the last reading.
    unread: Vec<u8>,
    /// When what passed came, and where it ends in `unread`.
    arrivals: Vec<(Instant, usize)>,
    /// `None`: see [`Position::Over`].
    decoder: Option<Decoder>,
    /// An answer with the id of no request of this stream has passed.
    had_stray_answer: bool,
}

impl PassedEvents {
    pub(super) fn new() -> Self {
        Self {
            unread: Vec::new(),
            arrivals: Vec::new(),
            decoder: Some(Decoder::new(EVENT_BYTES_MAX)),
            had_stray_answer: false,
        }
    }

    pub(super) fn had_stray_answer(&self) -> bool {
        self.had_stray_answer
    }

    /// Nothing counts that passes from now on.
    pub(super) fn end(&mut self) {
        self.decoder = None;
    }

    pub(super) fn position(&self) -> Position {
        match &self.decoder {
            None => Position::Over,
            Some(decoder) if decoder.is_between_events() => Position::BetweenEvents,
            Some(_) => Position::WithinEvent,
        }
    }

    /// Notes what passes. Gives whether so much has passed that it must be read.
    #[must_use]
    pub(super) fn passed(&mut self, bytes: &[u8]) -> bool {
        // A frame without bytes says nothing, and any number of them would fit below the bound of what is unread.
        if self.decoder.is_none() || bytes.is_empty() {
            return false;
        }
        self.unread.extend_from_slice(bytes);
        let (now, end) = (Instant::now(), self.unread.len());
        // Small pieces that come together share an entry, so that a stream of single bytes leaves little memory.
        match self.arrivals.last_mut() {
            Some((at, last)) if now.saturating_duration_since(*at) < TOGETHER => *last = end,
            _ => self.arrivals.push((now, end)),
        }
        self.unread.len() >= UNREAD_MAX
    }

    /// Reads what has passed of the call with that id, the newest message first. Of what came before the newest progress
    /// only an answer counts.
    pub(super) fn read(&mut self, id: &RawValue, keepalive: &mut Keepalive) {
        // Without a decoder the stream counts as over. It is put back below unless the answer has passed.
        let Some(mut decoder) = self.decoder.take() else {
            return;
        };
        let (mut messages, mut begin) = (Vec::new(), 0);
        let mut is_readable = true;
        for (at, end) in self.arrivals.drain(..) {
            let part = self.unread.get(begin..end).unwrap_or_default();
            begin = end;
            let fed = decoder.feed(part, |event| {
                if event.is_message() {
                    messages.push((at, event.data));
                }
            });
            is_readable = fed.is_ok();
            if !is_readable {
                break;
            }
        }
        // A large piece leaves no room behind that is not used again.
        self.unread.clear();
        self.unread.shrink_to(UNREAD_MAX * 2);
        let mut saw_progress = false;
        for (at, message) in messages.iter().rev() {
            if saw_progress && !may_be_answer(message) {
                continue;
            }
            let Ok(message) = Object::parse(message) else {
                continue;
            };
            if is_answer(&message, id) {
                return;
            }
            self.had_stray_answer |= is_any_answer(&message);
            saw_progress = saw_progress || keepalive.saw_at(&message, *at);
        }
        self.decoder = Some(decoder).filter(|_| is_readable);
    }
}

/// A look that costs less than to parse the message.
fn may_be_answer(message: &str) -> bool {
    message.contains("\"result\"") || message.contains("\"error\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_message_is_an_answer() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        for (name, position) in [
            ("ping", Position::BetweenEvents),
            ("message", Position::Over),
        ] {
            let mut keepalive = Keepalive::since(Instant::now(), raw("7"));
            let mut events = PassedEvents::new();
            let event = format!("event: {name}\ndata: {{\"id\":1,\"result\":{{}}}}\n\n");
            let _ = events.passed(event.as_bytes());
            events.read(&raw("1"), &mut keepalive);
            assert_eq!(events.position(), position, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_small_pieces_leave_little() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let mut keepalive = Keepalive::since(Instant::now(), raw("7"));
        let mut events = PassedEvents::new();
        for _ in 0..UNREAD_MAX * 2 {
            if events.passed(b"\n") {
                events.read(&raw("1"), &mut keepalive);
            }
        }
        let bytes = events.arrivals.capacity() * size_of::<(Instant, usize)>();
        assert!(bytes <= UNREAD_MAX * 2, "{bytes}");
        assert!(events.unread.capacity() <= UNREAD_MAX * 2);
        assert_eq!(events.position(), Position::BetweenEvents);
    }
}
