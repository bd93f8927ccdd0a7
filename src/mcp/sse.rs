//! Server-sent events: a bounded decoder that is fed bytes, and the encoder.

use bytes::Bytes;
use memchr::memchr2;

/// One event. Fields that the stream did not give are absent; `data` may be empty, as in the
/// priming events that only carry an id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub event: Option<String>,
    pub data: String,
    /// `true` if there was a `data` field. An empty field counts.
    pub has_data: bool,
    pub id: Option<String>,
    /// Milliseconds to wait before reconnecting.
    pub retry: Option<u64>,
}

impl SseEvent {
    /// True for an event that may have a message: clients ignore events of other names (2025-11-25, Transports,
    /// Streamable HTTP).
    pub fn is_message(&self) -> bool {
        let name = self.event.as_deref().unwrap_or_default();
        name.is_empty() || name == "message"
    }
}

/// An event was larger than allowed, or not UTF-8: the stream is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseFault {
    #[error("an event is larger than allowed")]
    TooLarge,
    #[error("an event is not UTF-8")]
    NotUtf8,
}

/// Splits a byte stream into events. Holds at most one event of the allowed size.
#[derive(Debug)]
pub struct Decoder {
    bytes_max: usize,
    line: Vec<u8>,
    current: SseEvent,
    /// `true` if a field came since the last event. An empty line ends the event.
    begun: bool,
    size: usize,
    after_cr: bool,
    first_line: bool,
}

impl Decoder {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            current: SseEvent::default(),
            begun: false,
            size: 0,
            after_cr: false,
            first_line: true,
        }
    }

    /// Takes the next bytes and hands every event that they complete to `found`.
    pub fn feed(&mut self, mut bytes: &[u8], found: impl FnMut(SseEvent)) -> Result<(), SseFault> {
        self.feed_up_to(&mut bytes, found)
    }

    /// Like [`Self::feed`], and leaves in `bytes` what was not taken: for an event that is too large, the
    /// part that exceeds the limit.
    pub fn feed_up_to(
        &mut self,
        bytes: &mut &[u8],
        mut found: impl FnMut(SseEvent),
    ) -> Result<(), SseFault> {
        while let Some(first) = bytes.first() {
            // A carriage return and its line feed are one line end, and may come in two chunks.
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                *bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let end = memchr2(b'\n', b'\r', bytes);
            let (part, rest) = bytes
                .split_at_checked(end.unwrap_or(bytes.len()))
                .unwrap_or((bytes, &[]));
            // Counted before anything is copied, so that a chunk beyond the bound takes no memory.
            self.size += part.len();
            if self.size > self.bytes_max {
                return Err(SseFault::TooLarge);
            }
            *bytes = rest;
            let Some(ending) = rest.first() else {
                self.line.extend_from_slice(part);
                return Ok(());
            };
            self.after_cr = *ending == b'\r';
            *bytes = rest.get(1..).unwrap_or_default();
            // Most lines come in one piece, which is read where it is.
            let ended = if self.line.is_empty() {
                self.end_line(part)?
            } else {
                self.line.extend_from_slice(part);
                let line = std::mem::take(&mut self.line);
                self.end_line(&line)?
            };
            if let Some(event) = ended {
                found(event);
            }
        }
        Ok(())
    }

    /// Takes the begun part of the event that is too large: its fields so far, and the incomplete line. The
    /// decoder then starts anew with the next event.
    pub fn take_refused(&mut self) -> (SseEvent, Vec<u8>) {
        self.size = 0;
        self.begun = false;
        (
            std::mem::take(&mut self.current),
            std::mem::take(&mut self.line),
        )
    }

    /// The event that has begun, at the end of a stream that was not cut: some servers leave out the empty line behind the
    /// last one.
    pub fn last(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        // Either the incomplete line or the empty line after it ends the event.
        let ended = self.end_line(&line).ok()?;
        ended.or_else(|| self.end_line(b"").ok()?)
    }

    /// Returns `true` if no event has begun, so that another event may stand here.
    pub fn is_between_events(&self) -> bool {
        !self.begun && self.line.is_empty()
    }

    fn end_line(&mut self, line: &[u8]) -> Result<Option<SseEvent>, SseFault> {
        // Lines are checked, and not chunks, because a chunk may end inside a character.
        let line = std::str::from_utf8(line).map_err(|_| SseFault::NotUtf8)?;
        let is_first = std::mem::take(&mut self.first_line);
        // The standard removes one byte order mark from the beginning of a stream, and none later.
        let line = if is_first {
            line.strip_prefix('\u{feff}').unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            self.size = 0;
            let mut event = std::mem::take(&mut self.current);
            event.data.pop();
            return Ok(std::mem::take(&mut self.begun).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.current.event = Some(value.to_owned()),
            "data" => {
                self.current.has_data = true;
                // Lines are joined by a line feed: the one after the last is taken off at the end.
                self.current.data.reserve(value.len() + 1);
                self.current.data.push_str(value);
                self.current.data.push('\n');
            }
            // The standard ignores an id with a null character.
            "id" if !value.contains('\0') => self.current.id = Some(value.to_owned()),
            "retry" => self.current.retry = value.parse().ok(),
            // A comment belongs to no event and does not count towards its size.
            _ => {
                self.size = self.size.saturating_sub(line.len());
                return Ok(None);
            }
        }
        self.begun = true;
        Ok(None)
    }
}

/// The stream with `ms` in every `retry` field. A line without its end stays as it is, because the rest of
/// the line may follow.
pub fn with_retry(stream: &[u8], ms: u64) -> Vec<u8> {
    let is_ending = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let mut out = Vec::with_capacity(stream.len() + 8);
    for line in stream.split_inclusive(is_ending) {
        match line.last().filter(|byte| is_ending(byte)) {
            Some(ending) if line.starts_with(b"retry:") => {
                out.extend_from_slice(format!("retry: {ms}").as_bytes());
                out.push(*ending);
            }
            _ => out.extend_from_slice(line),
        }
    }
    out
}

/// A comment that keeps a quiet connection alive.
pub const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// A JSON-RPC message as one event. JSON may be written over several lines; an event cannot.
pub fn event(json: &str) -> Bytes {
    let mut out = Vec::with_capacity(json.len() + 24);
    out.extend_from_slice(b"event: message\n");
    end_event(out, json)
}

/// A JSON-RPC message as one event with an id, for a client that can resume the stream after this event. The
/// id is one line.
pub fn event_with_id(id: &str, json: &str) -> Bytes {
    let mut out = Vec::with_capacity(json.len() + id.len() + 32);
    out.extend_from_slice(b"event: message\nid: ");
    out.extend_from_slice(id.as_bytes());
    out.push(b'\n');
    end_event(out, json)
}

/// An event without a message: the id from which the client can resume before the first message, and how many
/// milliseconds to wait before that (2025-11-25, Sending Messages to the Server).
pub fn priming(id: &str, retry_ms: u64) -> Bytes {
    format!("id: {id}\nretry: {retry_ms}\ndata: \n\n").into()
}

fn end_event(mut out: Vec<u8>, json: &str) -> Bytes {
    let mut rest = json.as_bytes();
    while !rest.is_empty() {
        let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        // JSON has line breaks between its parts only, so nothing is lost with an empty line.
        if !line.is_empty() {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        rest = after.get(1..).unwrap_or_default();
    }
    out.push(b'\n');
    out.into()
}

/// Data that is no message as an event, with the default name where the event was named.
pub fn unread(data: String, is_named: bool, id: Option<String>) -> Bytes {
    encode(&SseEvent {
        event: is_named.then(|| "message".to_owned()),
        data,
        has_data: true,
        id,
        retry: None,
    })
}

/// The event as bytes, with the fields that it had.
pub fn encode(event: &SseEvent) -> Bytes {
    let SseEvent {
        event,
        data,
        has_data,
        id,
        retry,
    } = event;
    let retry = retry.map(|retry| retry.to_string());
    let fields = [("event", event), ("id", id), ("retry", &retry)];
    let mut out = Vec::with_capacity(data.len() + 64);
    for (name, value) in fields {
        if let Some(value) = value {
            field(&mut out, name, value);
        }
    }
    if *has_data {
        for line in data.split('\n') {
            field(&mut out, "data", line);
        }
    }
    out.push(b'\n');
    out.into()
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<SseEvent> {
        let (mut decoder, mut events) = (Decoder::new(1000), Vec::new());
        for chunk in chunks {
            decoder.feed(chunk, |event| events.push(event)).unwrap();
        }
        events
    }

    #[test]
    fn a_pause_is_replaced_where_it_is_whole() {
        let said = b"id: 1\r\nretry: 50\r\ndata: retry: 7\n\nretry:9\n\nretry: 1";
        let told = b"id: 1\r\nretry: 1000\r\ndata: retry: 7\n\nretry: 1000\n\nretry: 1";
        assert_eq!(with_retry(said, 1000), told);
    }

    #[test]
    fn bytes_may_be_split_anywhere() {
        let text = "\u{feff}: hi\r\n\r\nid: 1\r\ndata: \r\nretry: 100\r\n\r\nevent: message\rdata:{\"a\":\rdata: 1}é\r\rdata\n\nunknown: x\n\n";
        let whole = decode(&[text.as_bytes()]);
        assert_eq!(whole.len(), 3);
        assert_eq!(
            whole[0],
            SseEvent {
                id: Some("1".into()),
                retry: Some(100),
                has_data: true,
                ..SseEvent::default()
            }
        );
        assert_eq!(whole[1].data, "{\"a\":\n1}é");
        assert_eq!(whole[1].event.as_deref(), Some("message"));
        let empty = SseEvent {
            has_data: true,
            ..SseEvent::default()
        };
        assert_eq!(whole[2], empty);
        for at in 0..text.len() {
            let (a, b) = text.as_bytes().split_at(at);
            assert_eq!(decode(&[a, b]), whole, "split at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(decode(&bytes), whole);
    }

    #[test]
    fn events_are_bounded_and_comments_free() {
        let mut decoder = Decoder::new(10);
        for _ in 0..100 {
            decoder.feed(b": 12345\n", |_| ()).unwrap();
        }
        assert_eq!(
            decoder.feed(b"data: 123456", |_| ()),
            Err(SseFault::TooLarge)
        );
        assert_eq!(
            Decoder::new(9).feed(b"data: \xff\n", |_| ()),
            Err(SseFault::NotUtf8)
        );
    }

    #[test]
    fn an_event_stays_what_it_was() {
        for text in [
            "event: message\nid: 7\nretry: 100\ndata: a\ndata: \ndata:  b\n\n",
            "id: 7\ndata: \n\n",
            "id: \n\n",
            "retry: 5\n\n",
        ] {
            let [event] = &decode(&[text.as_bytes()])[..] else {
                panic!("one event")
            };
            assert_eq!(encode(event), text);
        }
    }

    #[test]
    fn only_the_default_name_is_a_message_s() {
        for (text, is_message) in [
            ("data: {}\n\n", true),
            ("event: message\ndata: {}\n\n", true),
            ("event:\ndata: {}\n\n", true),
            ("event: Message\ndata: {}\n\n", false),
            ("event: ping\ndata: {}\n\n", false),
        ] {
            assert_eq!(
                decode(&[text.as_bytes()])[0].is_message(),
                is_message,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let events = decode(&[&event("{\n  \"a\": 1\r\n}"), &COMMENT]);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].data, "{\n  \"a\": 1\n}");
        let events = decode(&[&priming("a/0", 1000), &event_with_id("a/1", "{}")]);
        assert_eq!(events.len(), 2);
        assert_eq!(
            (events[0].id.as_deref(), events[0].retry),
            (Some("a/0"), Some(1000))
        );
        assert_eq!(events[0].data, "");
        assert_eq!(
            (events[1].id.as_deref(), &*events[1].data),
            (Some("a/1"), "{}")
        );
    }
}
