//! Reads the lines of one process as messages, as far as they are some.

use tracing::warn;

use crate::base::printable::printable;
use crate::upstream::envelope_scan::EnvelopeScan;
use crate::upstream::line::writer::{LineListener, LineWriter};
use crate::upstream::server_message;
use crate::upstream::server_message::ServerMessage;

/// The number of unreadable lines that are logged. All are counted.
const GARBAGE_LOGGED: u64 = 5;

/// The number of characters of an unreadable line that are logged.
const QUOTED_MAX: usize = 80;

/// Programs on .NET and PowerShell begin their output with a byte order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The reader of the lines of one process, and its state so far.
pub(super) struct Hearing<'l, E> {
    listener: &'l E,
    writer: LineWriter,
    pid: u32,
    bytes_max: usize,
    /// Lines that were no message.
    garbage: u64,
    /// `true` if a message was received.
    has_spoken: bool,
    /// A message that is written over several lines, as far as it came.
    begun: Option<BegunMessage>,
}

/// The lines of a message so far.
#[derive(Default)]
struct BegunMessage {
    text: Vec<u8>,
    envelope: EnvelopeScan,
}

impl BegunMessage {
    fn take(&mut self, line: &[u8]) {
        for bytes in [line, b"\n"] {
            self.text.extend_from_slice(bytes);
            for byte in bytes {
                self.envelope.take(*byte);
            }
        }
    }
}

impl<'l, E: LineListener> Hearing<'l, E> {
    pub(super) fn new(listener: &'l E, writer: LineWriter, pid: u32, bytes_max: usize) -> Self {
        Self {
            listener,
            writer,
            pid,
            bytes_max,
            garbage: 0,
            has_spoken: false,
            begun: None,
        }
    }

    /// Takes one line.
    pub(super) fn hear(&mut self, line: &[u8]) {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return;
        }
        if let Some(mut begun) = self.begun.take() {
            // Within a message over several lines, lines are indented.
            if line.starts_with(b"{") && server_message::read_line(line).is_ok() {
                self.count(&begun.text);
            } else {
                begun.take(line);
                return self.go_on(begun);
            }
        }
        if self.is_heard(line) {
            return;
        }
        let mut begun = BegunMessage::default();
        begun.take(line);
        if begun.envelope.is_broken || begun.envelope.is_whole() {
            self.count(line);
        } else {
            self.begun = Some(begun);
        }
    }

    /// Takes what was written behind the last line. It counts without a line end if it is a message. If it is none, it was
    /// cut, as the process was.
    pub(super) fn end(&mut self, rest: &[u8]) {
        let read = server_message::read_line(rest);
        if !matches!(read, Ok((ServerMessage::Unreadable { .. }, _))) {
            self.hear(rest);
        }
    }

    fn go_on(&mut self, begun: BegunMessage) {
        // An object that is never closed would otherwise take in all messages that follow.
        let is_over = begun.envelope.is_whole() || begun.text.len() > self.bytes_max;
        if !is_over {
            self.begun = Some(begun);
        } else if !self.is_heard(&begun.text) {
            self.count(&begun.text);
        }
    }

    /// Returns `false` if the text is no message.
    fn is_heard(&mut self, text: &[u8]) -> bool {
        let batch = if text.starts_with(b"[") {
            std::str::from_utf8(text)
                .ok()
                .and_then(server_message::batch)
        } else {
            None
        };
        if let Some(batch) = batch {
            for text in batch {
                match server_message::read(&text) {
                    Ok(message) => self.heard(message, &text),
                    Err(_) => self.count(text.as_bytes()),
                }
            }
            return true;
        }
        match server_message::read_line(text) {
            Ok((message, text)) => self.heard(message, &text),
            Err(_) => return false,
        }
        true
    }

    fn heard(&mut self, message: ServerMessage, text: &str) {
        self.has_spoken = true;
        self.listener.heard(message, text);
    }

    fn count(&mut self, line: &[u8]) {
        self.garbage = self.garbage.saturating_add(1);
        let line = quoted(line, self.has_spoken);
        if !self.has_spoken {
            self.writer.wrote(&line);
        }
        let lines = self.garbage;
        // After the first lines only each doubling is logged, because some programs write their whole log to this
        // output.
        if lines <= GARBAGE_LOGGED || lines.is_power_of_two() {
            let pid = self.pid;
            warn!(
                pid,
                lines,
                line,
                "the server wrote what is no message to its standard output; its log belongs on standard error"
            );
        }
    }
}

/// Returns the beginning of a line, safe to be logged. A line that looks like a part of a message is not quoted,
/// because a message may contain the data of any client; unless the process has not sent a message yet, and so has no
/// client's data.
fn quoted(line: &[u8], has_spoken: bool) -> String {
    let line = String::from_utf8_lossy(line.trim_ascii());
    if has_spoken && line.contains(['{', '"']) {
        return "[looks like JSON]".to_owned();
    }
    printable(&line).chars().take(QUOTED_MAX).collect()
}
