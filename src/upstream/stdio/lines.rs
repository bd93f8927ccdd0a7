//! Lines out of a byte stream, of bounded length. Pure.

/// What happens to a line that is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooLong {
    /// The stream is of no further use.
    Refuse,
    /// Its beginning counts, the rest is dropped.
    Clip,
}

/// A line was longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// Room that is kept for the next line; more is given back.
const KEPT: usize = 1 << 20;

/// Splits bytes at line feeds. Holds at most one line of the allowed length.
#[derive(Debug)]
pub(super) struct Lines {
    bytes_max: usize,
    too_long: TooLong,
    held: Vec<u8>,
}

impl Lines {
    pub(super) fn new(bytes_max: usize, too_long: TooLong) -> Self {
        Self {
            bytes_max,
            too_long,
            held: Vec::new(),
        }
    }

    /// Takes the next bytes and hands every line that they complete to `found`, without its end.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut found: impl FnMut(&[u8]),
    ) -> Result<(), Refused> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
            bytes = rest.get(1..).unwrap_or_default();
            self.hold(line)?;
            found(self.held.strip_suffix(b"\r").unwrap_or(&self.held));
            self.held.clear();
            self.held.shrink_to(KEPT);
        }
        self.hold(bytes)
    }

    /// What came after the last line feed.
    pub(super) fn rest(&self) -> &[u8] {
        &self.held
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        let room = self.bytes_max.saturating_sub(self.held.len());
        let fitting = bytes.get(..room);
        self.held.extend_from_slice(fitting.unwrap_or(bytes));
        match (fitting, self.too_long) {
            (Some(fits), TooLong::Refuse) if fits.len() < bytes.len() => Err(Refused),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(lines: &mut Lines, chunks: &[&[u8]]) -> Result<Vec<String>, Refused> {
        let mut found = Vec::new();
        for chunk in chunks {
            lines.feed(chunk, |line| {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            })?;
        }
        Ok(found)
    }

    #[test]
    fn bytes_may_be_split_anywhere() {
        let text = b"one\r\n\ntwo\nlast";
        for at in 0..text.len() {
            let mut lines = Lines::new(10, TooLong::Refuse);
            let (a, b) = text.split_at(at);
            assert_eq!(split(&mut lines, &[a, b]).unwrap(), ["one", "", "two"]);
            assert_eq!(lines.rest(), b"last");
        }
    }

    #[test]
    fn a_line_is_bounded() {
        let mut lines = Lines::new(4, TooLong::Refuse);
        assert_eq!(split(&mut lines, &[b"1234\n12", b"34\n"]).unwrap().len(), 2);
        assert_eq!(split(&mut lines, &[b"123", b"45"]), Err(Refused));
        let mut lines = Lines::new(4, TooLong::Clip);
        assert_eq!(
            split(&mut lines, &[b"123", b"456", b"789\nab\n"]).unwrap(),
            ["1234", "ab"]
        );
    }

    #[test]
    fn room_for_a_large_line_is_given_back() {
        let mut lines = Lines::new(8 * KEPT, TooLong::Refuse);
        lines.feed(&vec![b'x'; 4 * KEPT], |_| ()).unwrap();
        lines
            .feed(b"\n", |line| assert_eq!(line.len(), 4 * KEPT))
            .unwrap();
        assert!(lines.held.capacity() <= KEPT);
    }
}
