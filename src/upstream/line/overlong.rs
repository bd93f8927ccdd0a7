//! Finds the id of an answer that is longer than allowed, without keeping the answer. Pure. The tool has run,
//! and other calls go on over the same line. So only the call that is answered must end.

use memchr::memchr;

use crate::upstream::envelope_scan::EnvelopeScan;
use crate::upstream::failures::TOO_LARGE;
use crate::upstream::server_message::ServerMessage;

/// A message longer than this is given up, and the line with it.
const BYTES_MAX: u64 = 1 << 30;

/// The known part of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::upstream) enum OverlongVerdict {
    /// The message has not ended yet.
    Open,
    /// The message has ended, and answers the request with this id, as JSON.
    Answer(Box<str>),
    /// The message has ended. It is a notification or a line of text, so it answers no request.
    Needless,
    /// The message answers no request, or its request cannot be found out.
    Nobodys,
}

/// Reads the names of the members of one object, and its `id`.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Overlong {
    read: u64,
    /// The first byte that is no white space.
    first: Option<u8>,
    /// A message may begin behind a text.
    has_brace: bool,
    envelope: EnvelopeScan,
}

impl Overlong {
    /// Takes bytes up to the end of the line.
    pub(in crate::upstream) fn next(&mut self, bytes: &mut &[u8]) -> OverlongVerdict {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes
            .split_at_checked(end.unwrap_or(bytes.len()))
            .unwrap_or((bytes, &[]));
        *bytes = rest.get(1..).unwrap_or_default();
        self.read += line.len() as u64;
        for byte in line {
            self.envelope.take(*byte);
        }
        let first = || line.iter().find(|byte| !byte.is_ascii_whitespace());
        self.first = self.first.or_else(|| first().copied());
        self.has_brace |= memchr(b'{', line).is_some();
        // Where the id cannot be found, it may answer any call, so the line cannot go on.
        if self.envelope.is_broken && !self.is_text() || self.read > BYTES_MAX {
            return OverlongVerdict::Nobodys;
        }
        match end {
            Some(_) => self.verdict(),
            None => OverlongVerdict::Open,
        }
    }

    /// Returns the number of bytes that were read beside the message.
    pub(in crate::upstream) fn skipped(&mut self, bytes: usize) -> OverlongVerdict {
        self.read += bytes as u64;
        if self.read > BYTES_MAX {
            OverlongVerdict::Nobodys
        } else {
            OverlongVerdict::Open
        }
    }

    /// Returns `true` for a text without a message.
    fn is_text(&self) -> bool {
        let is_message = |first| matches!(first, b'[' | b'\xef');
        !self.has_brace && self.first.is_some_and(|first| !is_message(first))
    }

    fn verdict(&self) -> OverlongVerdict {
        let envelope = &self.envelope;
        if self.is_text() {
            return OverlongVerdict::Needless;
        }
        match envelope.id() {
            None if envelope.is_whole() && envelope.is_request() => OverlongVerdict::Needless,
            // The id of a request is the server's own, and may equal one of raincheck's.
            Some(id) if envelope.is_whole() && !envelope.is_request() => {
                OverlongVerdict::Answer(id.into())
            }
            Some(_) | None => OverlongVerdict::Nobodys,
        }
    }
}

/// The message that stands for an answer that was too large to be kept.
pub(in crate::upstream) fn too_large(id: Box<str>) -> ServerMessage {
    ServerMessage::Unreadable {
        id,
        failure: TOO_LARGE,
        is_utf8: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_of(line: &str, step: usize) -> OverlongVerdict {
        let mut overlong = Overlong::default();
        let line = format!("{line}\nnext");
        for chunk in line.as_bytes().chunks(step) {
            let mut bytes = chunk;
            let verdict = overlong.next(&mut bytes);
            if verdict != OverlongVerdict::Open {
                return verdict;
            }
            assert!(bytes.is_empty());
        }
        OverlongVerdict::Open
    }

    #[test]
    fn an_answer_is_found_wherever_its_id_stands() {
        for (line, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"x":["}",{"id":9}]}}"#,
                "7",
            ),
            (
                r#"{"result":{"t":"\",\"id\":8"} , "jsonrpc":"2.0", "id" : "a b\"c" }"#,
                r#""a b\"c""#,
            ),
            ("{\"error\":{},\"id\":-1}\r", "-1"),
        ] {
            for step in [1, 2, 7, 1000] {
                assert_eq!(
                    verdict_of(line, step),
                    OverlongVerdict::Answer(id.into()),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn what_answers_nobody_is_known() {
        let long = format!(r#"{{"id":"{}","result":1}}"#, "x".repeat(300));
        for line in [
            r#"[{"id":7,"result":1}]"#,
            r#"{"id":7,"method":"ping"}"#,
            r#"{"result":{"id":7}}"#,
            r#"{"id":{"id":7},"result":1}"#,
            r#"{"id":7,"result":{"#,
            r#"DEBUG {"id":7,"result":1}"#,
            &long,
        ] {
            assert_eq!(verdict_of(line, 3), OverlongVerdict::Nobodys, "{line}");
        }
        for line in [
            "DEBUG xxxx",
            r#""id":7"#,
            r#"{"method":"notifications/message","params":{"data":"}{"}}"#,
        ] {
            assert_eq!(verdict_of(line, 3), OverlongVerdict::Needless, "{line}");
        }
        let mut endless = Overlong {
            read: BYTES_MAX,
            ..Overlong::default()
        };
        assert_eq!(endless.next(&mut &b"{ "[..]), OverlongVerdict::Nobodys);
    }
}
