//! Reads an event that is longer than allowed to its end, to find out which request it answers. Pure.

use crate::mcp::sse::SseEvent;
use crate::upstream::line::overlong::{Overlong, OverlongVerdict};

/// The longest name of a field that matters here.
const NAME_MAX: usize = 8;

/// The part of a line that is being read.
#[derive(Debug)]
enum SsePlace {
    /// The name of the line's field, so far.
    Name(Vec<u8>),
    Data,
    /// A field that does not matter here, or a comment.
    Elsewhere,
}

/// The rest of an event of which only the id of the answer is kept.
#[derive(Debug)]
pub(super) struct OverlongEvent {
    message: Overlong,
    place: SsePlace,
    after_cr: bool,
    /// Events of other types answer no request.
    pub(super) is_message: bool,
}

impl OverlongEvent {
    /// Begins with what was read of the event before it was too long.
    pub(super) fn begun(event: &SseEvent, line: &[u8]) -> (Self, OverlongVerdict) {
        let mut begun = Self {
            message: Overlong::default(),
            place: SsePlace::Name(Vec::new()),
            after_cr: false,
            is_message: event.is_message(),
        };
        let verdict = match begun.data(event.data.as_bytes()) {
            OverlongVerdict::Open => begun.next(&mut &*line),
            verdict @ (OverlongVerdict::Answer(_)
            | OverlongVerdict::Needless
            | OverlongVerdict::Nobodys) => verdict,
        };
        (begun, verdict)
    }

    /// Takes bytes up to the end of the event.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> OverlongVerdict {
        while let Some(first) = bytes.first() {
            // A carriage return and its line feed are one line end, and may come in two chunks.
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                *bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = bytes
                .split_at_checked(end.unwrap_or(bytes.len()))
                .unwrap_or((bytes, &[]));
            *bytes = rest;
            let verdict = self.part(part);
            if verdict != OverlongVerdict::Open {
                return verdict;
            }
            let Some(ending) = rest.first() else { continue };
            self.after_cr = *ending == b'\r';
            *bytes = rest.get(1..).unwrap_or_default();
            let line = std::mem::replace(&mut self.place, SsePlace::Name(Vec::new()));
            if matches!(line, SsePlace::Name(name) if name.is_empty()) {
                // An empty line ends the event.
                return self.message.next(&mut &b"\n"[..]);
            }
        }
        OverlongVerdict::Open
    }

    /// A part of a line.
    fn part(&mut self, part: &[u8]) -> OverlongVerdict {
        let SsePlace::Name(name) = &mut self.place else {
            return match self.place {
                SsePlace::Data => self.data(part),
                SsePlace::Name(_) | SsePlace::Elsewhere => self.elsewhere(part),
            };
        };
        let colon = part.iter().position(|byte| *byte == b':');
        let (more, value) = part
            .split_at_checked(colon.unwrap_or(part.len()))
            .unwrap_or((part, &[]));
        name.extend(more.iter().take(NAME_MAX - name.len()));
        if colon.is_none() {
            return self.elsewhere(more);
        }
        let value = value.get(1..).unwrap_or_default();
        if name == b"data" {
            self.place = SsePlace::Data;
            return self.data(value);
        }
        self.place = SsePlace::Elsewhere;
        self.elsewhere(value)
    }

    /// Reads a piece of the message. A line end within the data is white space of the message.
    fn data(&mut self, data: &[u8]) -> OverlongVerdict {
        for line in data.split(|byte| *byte == b'\n') {
            let verdict = self.message.next(&mut &*line);
            if verdict != OverlongVerdict::Open {
                return verdict;
            }
        }
        OverlongVerdict::Open
    }

    /// These bytes count like the message, so that no event is endless.
    fn elsewhere(&mut self, part: &[u8]) -> OverlongVerdict {
        self.message.skipped(part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::sse::{Decoder, SseFault};

    /// The verdict on the first event, and what is left after it. Nothing may be long.
    fn verdict_of(stream: &str, step: usize) -> (OverlongVerdict, String) {
        let mut decoder = Decoder::new(16);
        let mut overlong: Option<OverlongEvent> = None;
        let mut read = 0;
        for chunk in stream.as_bytes().chunks(step) {
            let mut bytes = chunk;
            let rest = |bytes: &[u8]| stream[read + chunk.len() - bytes.len()..].to_owned();
            if overlong.is_none() {
                match decoder.feed_up_to(&mut bytes, |event| panic!("{event:?}")) {
                    Ok(()) => {}
                    Err(SseFault::NotUtf8) => panic!(),
                    Err(SseFault::TooLarge) => {
                        let (event, line) = decoder.take_refused();
                        let (begun, verdict) = OverlongEvent::begun(&event, &line);
                        if verdict != OverlongVerdict::Open {
                            return (verdict, rest(bytes));
                        }
                        overlong = Some(begun);
                    }
                }
            }
            if let Some(overlong) = &mut overlong {
                let verdict = overlong.next(&mut bytes);
                if verdict != OverlongVerdict::Open {
                    return (verdict, rest(bytes));
                }
            }
            read += chunk.len();
        }
        (OverlongVerdict::Open, String::new())
    }

    #[test]
    fn an_answer_is_found_whatever_the_lines_are() {
        for (event, left) in [
            (
                "event: message\ndata: {\"id\":7,\"result\":{\"a\":\"b\"}}\n\n",
                "next",
            ),
            (
                "data:{\"result\":\ndata: {\"a\":[1,2,3]},\ndata: \"id\" :\ndata: 7}\n\n",
                "next",
            ),
            (
                "id: 1\r\ndata: {\"result\":{},\r\n: a comment\r\nretry: 5\r\ndata: \"id\":7}\r\n\r\n",
                "\nnext",
            ),
        ] {
            for step in [1, 2, 5, 1000] {
                let (verdict, rest) = verdict_of(&format!("{event}next"), step);
                assert_eq!(
                    verdict,
                    OverlongVerdict::Answer("7".into()),
                    "{event} by {step}"
                );
                assert_eq!(rest, left);
            }
        }
    }

    #[test]
    fn what_answers_nobody_is_known() {
        for (event, verdict) in [
            (
                "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                OverlongVerdict::Needless,
            ),
            (
                r#"data: {"id":7,"method":"ping"}"#,
                OverlongVerdict::Nobodys,
            ),
            (
                "event: a name that is too long for that",
                OverlongVerdict::Nobodys,
            ),
        ] {
            for step in [1, 7, 1000] {
                let (found, _) = verdict_of(&format!("{event}\n\n"), step);
                assert_eq!(found, verdict, "{event}");
            }
        }
    }
}
