//! Where the body of a response ends. Pure.

use bytes::{Buf as _, BytesMut};

/// What is left of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Done,
    Length(usize),
    /// Bytes of the chunk that are left, with the line end after it. 0: a line with a size is next.
    Chunk(usize),
    UntilClosed,
}

/// What was in the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Piece,
    End,
    NeedsMore,
}

const LINE_END: &[u8] = b"\r\n";

impl Framing {
    pub(crate) fn of_length(length: usize) -> Self {
        match length {
            0 => Self::Done,
            length => Self::Length(length),
        }
    }

    /// Moves a piece of the body from the buffer to `out`.
    pub(crate) fn take(
        &mut self,
        buffer: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<Taken, String> {
        match *self {
            Self::Done => Ok(Taken::End),
            Self::Length(left) => {
                let moved = move_up_to(left, buffer, out);
                *self = Self::of_length(left - moved);
                Ok(piece(moved))
            }
            Self::UntilClosed => Ok(piece(move_up_to(usize::MAX, buffer, out))),
            Self::Chunk(_) => self.take_chunk(buffer, out),
        }
    }

    fn take_chunk(&mut self, buffer: &mut BytesMut, out: &mut Vec<u8>) -> Result<Taken, String> {
        loop {
            match *self {
                Self::Chunk(0) => {
                    let Some(end) = buffer.windows(2).position(|pair| pair == LINE_END) else {
                        return Ok(Taken::NeedsMore);
                    };
                    let size = chunk_size(buffer.get(..end).unwrap_or_default())?;
                    if size > 0 {
                        buffer.advance(end + LINE_END.len());
                        *self = Self::Chunk(size + LINE_END.len());
                        continue;
                    }
                    // No trailers are expected: the next line is empty.
                    let whole = end + 2 * LINE_END.len();
                    if buffer.len() < whole {
                        return Ok(Taken::NeedsMore);
                    }
                    buffer.advance(whole);
                    *self = Self::Done;
                    return Ok(Taken::End);
                }
                Self::Chunk(left) if left > LINE_END.len() => {
                    let moved = move_up_to(left - LINE_END.len(), buffer, out);
                    *self = Self::Chunk(left - moved);
                    return Ok(piece(moved));
                }
                Self::Chunk(left) if buffer.len() >= left => {
                    buffer.advance(left);
                    *self = Self::Chunk(0);
                }
                Self::Chunk(_) | Self::Done | Self::Length(_) | Self::UntilClosed => {
                    return Ok(Taken::NeedsMore);
                }
            }
        }
    }
}

fn piece(moved: usize) -> Taken {
    if moved == 0 {
        Taken::NeedsMore
    } else {
        Taken::Piece
    }
}

fn move_up_to(most: usize, buffer: &mut BytesMut, out: &mut Vec<u8>) -> usize {
    let moved = most.min(buffer.len());
    out.extend_from_slice(buffer.get(..moved).unwrap_or_default());
    buffer.advance(moved);
    moved
}

fn chunk_size(line: &[u8]) -> Result<usize, String> {
    let line = std::str::from_utf8(line).map_err(|_| "chunk line")?;
    let size = line.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(size, 16).map_err(|_| format!("chunk size {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body in `text`, which comes in pieces of that many bytes.
    fn read(mut framing: Framing, text: &[u8], bytes: usize) -> (Vec<u8>, Taken) {
        let (mut buffer, mut out) = (BytesMut::new(), Vec::new());
        let mut last = Taken::NeedsMore;
        for part in text.chunks(bytes) {
            buffer.extend_from_slice(part);
            loop {
                last = framing.take(&mut buffer, &mut out).unwrap();
                if last != Taken::Piece {
                    break;
                }
            }
        }
        (out, last)
    }

    #[test]
    fn a_body_is_the_same_however_it_is_cut() {
        for bytes in 1..30 {
            let chunked = b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n";
            let (body, end) = read(Framing::Chunk(0), chunked, bytes);
            assert_eq!((&*body, end), (&b"abcdefg"[..], Taken::End), "{bytes}");
            let (body, end) = read(Framing::Length(5), b"abcde", bytes);
            assert_eq!((&*body, end), (&b"abcde"[..], Taken::End), "{bytes}");
        }
        let (body, end) = read(Framing::Chunk(0), b"3\r\nab", 9);
        assert_eq!((&*body, end), (&b"ab"[..], Taken::NeedsMore));
    }
}
