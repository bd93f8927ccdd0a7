//! Reads request bodies whole, within the bound for one body and the memory for all of them.

use std::mem;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::{Response, StatusCode};

use super::body::Body;
use super::outbound::response;
use super::proxy::Proxy;
use crate::mcp::error::RpcError;
use crate::sharing::room::{BufferShare, SMALL};
use crate::telemetry::limits::{self, LimitHit};

/// Upper bound of the time in which a request body arrives.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of reading a request body.
pub(super) enum ReadBody {
    Whole(Bytes),
    Refused(Response<Body>),
}

/// Reads a body. A body is refused before it is read if there is no memory for the length that it announces.
pub(super) async fn read(proxy: &Proxy, mut body: Incoming) -> ReadBody {
    let bytes_max = proxy.live.body_bytes_max();
    let announced = body.size_hint().exact().unwrap_or_default();
    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
    let mut reader = BodyReader {
        // An announced length beyond the bound reserves no more than the largest body.
        announced: announced.min(bytes_max),
        bytes_max,
        place: proxy.room.enter(),
        pieces: BodyPieces::default(),
    };
    if !proxy.room.has(reader.announced) {
        return no_room();
    }
    match tokio::time::timeout(PATIENCE, reader.read(&mut body)).await {
        Ok(Ok(true)) => ReadBody::Whole(reader.end()),
        Ok(Ok(false)) => {
            limits::refused(LimitHit::BodyBytes);
            let error = RpcError::invalid_request("Invalid request: the body is too large");
            ReadBody::Refused(response::refusal_and_close(
                StatusCode::PAYLOAD_TOO_LARGE,
                &error,
            ))
        }
        Ok(Err(Unread::NoRoom)) => no_room(),
        Ok(Err(Unread::Broken)) => {
            let error = RpcError::parse("Parse error: the body ended early");
            ReadBody::Refused(response::refusal_and_close(StatusCode::BAD_REQUEST, &error))
        }
        Err(_elapsed) => {
            let error = RpcError::invalid_request("Invalid request: the body came too slowly");
            ReadBody::Refused(response::refusal_and_close(
                StatusCode::REQUEST_TIMEOUT,
                &error,
            ))
        }
    }
}

fn no_room() -> ReadBody {
    limits::refused(LimitHit::BufferBytes);
    let error = RpcError::internal(
        "Too much is being sent at the same time (limits.buffer_bytes_max); try again",
    );
    ReadBody::Refused(response::closing(response::refusal_for_now(&error)))
}

/// Why a body was not read to its end.
enum Unread {
    NoRoom,
    Broken,
}

/// A body that is being read.
struct BodyReader {
    announced: usize,
    bytes_max: usize,
    place: BufferShare,
    pieces: BodyPieces,
}

impl BodyReader {
    /// Reads to the end. False: the body is too large.
    async fn read(&mut self, body: &mut Incoming) -> Result<bool, Unread> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Unread::Broken)?;
            if let Ok(data) = frame.into_data() {
                self.add(data)?;
            }
            // Looked at after each piece, because a chunked body announces no length.
            if self.pieces.len() > self.bytes_max {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds a piece. A large body gets memory for its whole length when its first bytes arrive: a body that is only
    /// announced takes none, and of many large bodies some are read to their end.
    fn add(&mut self, data: Bytes) -> Result<(), Unread> {
        let sum = self.pieces.len() + data.len();
        let in_one_piece = self.pieces.len() == 0;
        let wanted = if sum <= SMALL {
            sum
        } else if in_one_piece || sum <= self.announced {
            sum.max(self.announced)
        } else if sum <= self.pieces.capacity() {
            self.pieces.capacity()
        } else {
            // Doubling keeps the number of buffers small. Beyond the largest body, only what has come is counted.
            sum.max((2 * sum).min(self.bytes_max))
        };
        if !self.place.grow_to(wanted) {
            return Err(Unread::NoRoom);
        }
        self.pieces.add(data, wanted);
        Ok(())
    }

    fn end(self) -> Bytes {
        let bytes = self.pieces.join();
        // A small body counts only while it arrives: its share is given back here.
        if bytes.len() <= SMALL {
            bytes
        } else {
            self.place.tie_to(bytes)
        }
    }
}

/// The bytes of a body that have arrived. A body that outgrows its buffer gets a second one beside it, and is copied
/// together once, at its end: while many bodies grow, no memory that was just freed stays with the process.
#[derive(Default)]
struct BodyPieces {
    /// The first piece. Most bodies have only one, which is not copied.
    first: Bytes,
    full: Vec<BytesMut>,
    full_len: usize,
    last: BytesMut,
}

impl BodyPieces {
    fn len(&self) -> usize {
        self.first.len() + self.full_len + self.last.len()
    }

    /// Returns the length up to which the body can grow without another buffer.
    fn capacity(&self) -> usize {
        self.full_len + self.last.capacity()
    }

    /// Adds a piece. Where a buffer is missing, there is one for a body of `wanted` bytes afterwards.
    fn add(&mut self, mut data: Bytes, wanted: usize) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if !self.first.is_empty() {
            self.last = BytesMut::with_capacity(wanted);
            self.last.extend_from_slice(&mem::take(&mut self.first));
        }
        let fits = self.last.capacity() - self.last.len();
        if fits < data.len() {
            self.last.extend_from_slice(&data.split_to(fits));
            self.full_len += self.last.len();
            let next = BytesMut::with_capacity(wanted - self.full_len);
            self.full.push(mem::replace(&mut self.last, next));
        }
        self.last.extend_from_slice(&data);
    }

    fn join(self) -> Bytes {
        if self.last.is_empty() {
            return self.first;
        }
        if self.full.is_empty() {
            return self.last.freeze();
        }
        let mut whole = BytesMut::with_capacity(self.len());
        for piece in self.full.iter().chain([&self.last]) {
            whole.extend_from_slice(piece);
        }
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_in_their_order() {
        let text: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for size in [1, 7, 64, 1000, 4999, 5000] {
            let mut pieces = BodyPieces::default();
            for piece in text.chunks(size) {
                let sum = pieces.len() + piece.len();
                let wanted = if sum <= pieces.capacity() {
                    pieces.capacity()
                } else {
                    2 * sum
                };
                pieces.add(Bytes::copy_from_slice(piece), wanted);
                assert_eq!(pieces.len(), sum);
            }
            assert_eq!(pieces.join(), text, "in pieces of {size}");
        }
        assert!(BodyPieces::default().join().is_empty());
    }

    #[test]
    fn a_body_whose_length_is_announced_has_one_buffer() {
        let mut pieces = BodyPieces::default();
        for _ in 0..10 {
            pieces.add(Bytes::from_static(b"0123456789"), 100);
        }
        assert!(pieces.full.is_empty() && pieces.first.is_empty());
        assert_eq!(pieces.join().len(), 100);
    }
}
