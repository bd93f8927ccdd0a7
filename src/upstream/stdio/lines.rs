//! Splits a byte stream into lines of bounded length. Pure.

/// The treatment of a line that is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooLong {
    /// The line is refused, and the stream is not used any more.
    Refuse,
    /// The beginning of the line is kept, and the rest is dropped.
    Clip,
}

/// A line was longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

/// The amount of memory that is kept for the next line. More is given back.
const KEPT: usize = 1 << 20;

/// Splits bytes at line feeds. Holds at most one line of the allowed length.
#[derive(Debug)]
pub(super) struct LineSplitter {
    bytes_max: usize,
    too_long: TooLong,
    held: Vec<u8>,
    /// The line that is held was handed out already.
    is_found: bool,
}

impl LineSplitter {
    pub(super) fn new(bytes_max: usize, too_long: TooLong) -> Self {
        Self {
            bytes_max,
            too_long,
            held: Vec::new(),
            is_found: false,
        }
    }

    /// Takes bytes up to the end of a line, and gives the line without its end. `None`: all bytes were taken,
    /// and complete no line. If the line is too long, what fits is held, and the rest is left.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<&[u8]>, LineTooLong> {
        self.forget_found();
        let all = *bytes;
        let room = self.bytes_max.saturating_sub(self.held.len());
        let end = all.iter().position(|byte| *byte == b'\n');
        let (line, rest) = all
            .split_at_checked(end.unwrap_or(all.len()))
            .unwrap_or((all, &[]));
        *bytes = rest.get(1..).unwrap_or_default();
        if let Err(refused) = self.hold(line) {
            // The caller looks for the id of the message in the rest of the line, so none of it may be lost.
            *bytes = all.get(room..).unwrap_or_default();
            return Err(refused);
        }
        if end.is_none() {
            return Ok(None);
        }
        self.is_found = true;
        Ok(Some(self.held.strip_suffix(b"\r").unwrap_or(&self.held)))
    }

    /// The bytes after the last line feed.
    pub(super) fn rest(&mut self) -> &[u8] {
        self.forget_found();
        &self.held
    }

    /// The part of a refused line that was held. The next line begins after it.
    pub(super) fn take_refused(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn forget_found(&mut self) {
        if std::mem::take(&mut self.is_found) {
            self.held.clear();
            self.held.shrink_to(KEPT);
        }
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), LineTooLong> {
        let room = self.bytes_max.saturating_sub(self.held.len());
        let fitting = bytes.get(..room);
        self.held.extend_from_slice(fitting.unwrap_or(bytes));
        match (fitting, self.too_long) {
            (Some(fits), TooLong::Refuse) if fits.len() < bytes.len() => Err(LineTooLong),
            _ => Ok(()),
        }
    }
}

/// Wherever the bytes are cut, the lines are those that a split of the whole finds.
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "fuzz/ calls it"))]
pub fn fuzzed(bytes: &[u8]) {
    let (first, stream) = bytes.split_first().unwrap_or((&0, &[]));
    let (a, b) = stream.split_at(usize::from(*first) % (stream.len() + 1));
    let mut lines = LineSplitter::new(1 << 20, TooLong::Refuse);
    let mut found = Vec::new();
    for mut part in [a, b] {
        while let Some(line) = lines.next(&mut part).unwrap() {
            found.push(line.to_vec());
        }
    }
    let mut expected: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    assert_eq!(Some(lines.rest()), expected.pop());
    let expected: Vec<&[u8]> = expected
        .into_iter()
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .collect();
    assert_eq!(found, expected);
    let mut clipped = LineSplitter::new(4, TooLong::Clip);
    let (mut rest, mut count) = (stream, 0);
    while let Some(line) = clipped.next(&mut rest).unwrap() {
        assert!(line.len() <= 4);
        count += 1;
    }
    assert_eq!(count, expected.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutator::fuzz;

    #[test]
    fn fuzzed_lines() {
        fuzz("lines", fuzzed);
    }

    fn split(lines: &mut LineSplitter, chunks: &[&[u8]]) -> Result<Vec<String>, LineTooLong> {
        let mut found = Vec::new();
        for chunk in chunks {
            let mut bytes = *chunk;
            while let Some(line) = lines.next(&mut bytes)? {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        Ok(found)
    }

    #[test]
    fn bytes_may_be_split_anywhere() {
        let text = b"one\r\n\ntwo\nlast";
        for at in 0..text.len() {
            let mut lines = LineSplitter::new(10, TooLong::Refuse);
            let (a, b) = text.split_at(at);
            assert_eq!(split(&mut lines, &[a, b]).unwrap(), ["one", "", "two"]);
            assert_eq!(lines.rest(), b"last");
        }
    }

    #[test]
    fn a_line_is_bounded() {
        let mut lines = LineSplitter::new(4, TooLong::Refuse);
        assert_eq!(split(&mut lines, &[b"1234\n12", b"34\n"]).unwrap().len(), 2);
        assert_eq!(split(&mut lines, &[b"123", b"45"]), Err(LineTooLong));
        assert_eq!(lines.take_refused(), b"1234");
        let mut bytes = &b"abcdef\ngh"[..];
        assert_eq!(lines.next(&mut bytes), Err(LineTooLong));
        assert_eq!(
            (lines.take_refused(), bytes),
            (b"abcd".to_vec(), &b"ef\ngh"[..])
        );
        let mut lines = LineSplitter::new(4, TooLong::Clip);
        assert_eq!(
            split(&mut lines, &[b"123", b"456", b"789\nab\n"]).unwrap(),
            ["1234", "ab"]
        );
    }

    #[test]
    fn room_for_a_large_line_is_given_back() {
        let mut lines = LineSplitter::new(8 * KEPT, TooLong::Refuse);
        let line = vec![b'x'; 4 * KEPT];
        assert_eq!(lines.next(&mut &*line).unwrap(), None);
        assert_eq!(lines.next(&mut &b"\n"[..]).unwrap().unwrap(), line);
        assert!(lines.rest().is_empty());
        assert!(lines.held.capacity() <= KEPT);
    }
}
