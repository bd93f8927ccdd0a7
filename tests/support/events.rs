//! The events of a response that streams, one after the other.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    unread: Vec<u8>,
}

impl Events {
    pub(crate) fn of(body: Incoming) -> Self {
        Self {
            body,
            unread: Vec::new(),
        }
    }

    /// The next event or comment, as it was written, without the empty line behind it; `None` when the stream has ended or
    /// broke. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((end, line_ends)) = end_of_event(&self.unread) {
                let mut event: Vec<u8> = self.unread.drain(..end + line_ends).collect();
                event.truncate(end);
                return Some(event);
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.unread.extend_from_slice(&data);
            }
        }
    }
}

/// Where the first event ends, and how long the ends of its last line and of the empty line are.
fn end_of_event(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut line_ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    line_ends.find_map(|(at, _)| {
        let behind = &bytes[at + 1..];
        let empty = ["\n", "\r\n"].map(str::as_bytes);
        let empty = empty.into_iter().find(|line| behind.starts_with(line))?;
        let end = bytes[..at].strip_suffix(b"\r").map_or(at, <[u8]>::len);
        Some((end, at + 1 - end + empty.len()))
    })
}
