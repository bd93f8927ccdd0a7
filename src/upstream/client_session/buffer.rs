//! Keeps the events that wait for a client, and those that the client may have missed when its connection was
//! cut. Pure.

use std::collections::VecDeque;

use crate::mcp::sse::SseEvent;

/// The number of events that wait for the reader, and of their bytes. Beyond either, raincheck reads no more of
/// the server's stream, or drops the oldest if there is no reader.
const EVENTS_MAX: usize = 64;
const BYTES_MAX: usize = 1 << 20;

/// The number of events that were handed over, may not have arrived and are kept, and of their bytes. The oldest are
/// dropped.
const SENT_MAX: usize = 64;
const SENT_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct Buffer {
    waiting: VecDeque<SseEvent>,
    waiting_bytes: usize,
    sent: VecDeque<SseEvent>,
    sent_bytes: usize,
}

impl Buffer {
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < EVENTS_MAX && self.waiting_bytes < BYTES_MAX
    }

    /// Makes room if there is no reader, because the server must be read all the same. A client can no longer
    /// resume before the gap.
    pub(super) fn shed(&mut self) {
        while !self.has_room()
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.waiting_bytes -= oldest.data.len();
        }
        self.sent.clear();
        self.sent_bytes = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn put(&mut self, event: SseEvent) {
        self.waiting_bytes += event.data.len();
        self.waiting.push_back(event);
    }

    pub(super) fn take(&mut self) -> Option<SseEvent> {
        let event = self.waiting.pop_front()?;
        self.waiting_bytes -= event.data.len();
        // A client can resume only after an event that has an id.
        if event.id.is_some() || !self.sent.is_empty() {
            self.sent_bytes += event.data.len();
            self.sent.push_back(event.clone());
        }
        while self.sent.len() > SENT_MAX || self.sent_bytes > SENT_BYTES_MAX {
            let oldest = self.sent.pop_front();
            self.sent_bytes -= oldest.map_or(0, |oldest| oldest.data.len());
        }
        Some(event)
    }

    /// Goes back to the events after the event with that id. False if that event is not known any more.
    pub(super) fn rewind(&mut self, id: &str) -> bool {
        let is_it = |event: &SseEvent| event.id.as_deref() == Some(id);
        // Searched from the end, so that an id that the server gave twice repeats as little as possible.
        let Some(at) = self.sent.iter().rposition(is_it) else {
            return false;
        };
        for event in self.sent.split_off(at + 1).into_iter().rev() {
            self.sent_bytes -= event.data.len();
            self.waiting_bytes += event.data.len();
            self.waiting.push_front(event);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: Option<&str>, size: usize) -> SseEvent {
        SseEvent {
            id: id.map(str::to_owned),
            data: "x".repeat(size),
            ..SseEvent::default()
        }
    }

    fn ids(buffer: &mut Buffer) -> Vec<String> {
        let taken = std::iter::from_fn(|| buffer.take());
        taken.map(|event| event.id.unwrap_or_default()).collect()
    }

    #[test]
    fn a_client_comes_back_to_where_it_was() {
        let mut buffer = Buffer::default();
        for id in [Some("1"), None, Some("2"), Some("3")] {
            buffer.put(event(id, 1));
        }
        assert_eq!(ids(&mut buffer), ["1", "", "2", "3"]);
        buffer.put(event(Some("4"), 1));
        assert!(!buffer.rewind("4") && !buffer.rewind("0"));
        assert!(buffer.rewind("1"));
        assert_eq!(ids(&mut buffer), ["", "2", "3", "4"]);
        assert!(buffer.rewind("4"));
        assert!(buffer.is_empty());
        // If the server gives no ids, nothing is kept.
        let mut buffer = Buffer::default();
        buffer.put(event(None, 1));
        assert_eq!(ids(&mut buffer), [""]);
        assert!(buffer.sent.is_empty());
    }

    #[test]
    fn what_waits_and_what_is_kept_is_bounded() {
        let mut buffer = Buffer::default();
        for number in 0..EVENTS_MAX {
            assert!(buffer.has_room());
            buffer.put(event(Some(&number.to_string()), 16 * 1024));
        }
        assert!(!buffer.has_room());
        assert_eq!(ids(&mut buffer).len(), EVENTS_MAX);
        assert!(buffer.has_room());
        assert!(buffer.sent_bytes <= SENT_BYTES_MAX && buffer.waiting_bytes == 0);
        buffer.put(event(Some("last"), 1));
        assert_eq!(ids(&mut buffer), ["last"]);
        for number in 0..EVENTS_MAX {
            buffer.put(event(Some(&number.to_string()), 1));
        }
        buffer.shed();
        assert!(buffer.has_room() && !buffer.rewind("last"));
        assert_eq!(ids(&mut buffer).first().unwrap(), "1");
        buffer.put(event(None, BYTES_MAX));
        assert!(!buffer.has_room());
        ids(&mut buffer);
        assert!(buffer.sent.is_empty() && buffer.sent_bytes == 0);
    }
}
