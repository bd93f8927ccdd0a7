//! Reads request bodies whole, within the bound for one body and the memory for all of them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::{Response, StatusCode};

use super::body::Body;
use super::outbound::response;
use super::proxy::Proxy;
use crate::mcp::error::RpcError;
use crate::room::{BufferShare, SMALL};
use crate::telemetry::limits::{self, LimitHit};

/// How long a request body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of a request body.
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
        announced: announced.min(bytes_max),
        bytes_max,
        place: proxy.room.enter(),
        first: Bytes::new(),
        more: BytesMut::new(),
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
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ReadBody::Refused(response::refusal_and_close(status, &error))
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
    /// The first piece. Most bodies have only one, which is not copied.
    first: Bytes,
    more: BytesMut,
}

impl BodyReader {
    fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    /// Reads to the end. False: the body is too large.
    async fn read(&mut self, body: &mut Incoming) -> Result<bool, Unread> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Unread::Broken)?;
            if let Ok(data) = frame.into_data() {
                self.add(data)?;
            }
            if self.len() > self.bytes_max {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds a piece. A large body gets memory for its whole length when its first bytes arrive: a body that is only
    /// announced takes none, and of many large bodies some are read to their end.
    fn add(&mut self, data: Bytes) -> Result<(), Unread> {
        let sum = self.len() + data.len();
        let in_one_piece = self.len() == 0;
        let wanted = if sum <= SMALL {
            sum
        } else if in_one_piece || sum <= self.announced {
            sum.max(self.announced)
        } else if sum <= self.more.capacity() {
            self.more.capacity()
        } else {
            sum.max((2 * sum).min(self.bytes_max))
        };
        if !self.place.grow_to(wanted) {
            return Err(Unread::NoRoom);
        }
        if in_one_piece {
            self.first = data;
            return Ok(());
        }
        if self.more.capacity() < sum {
            let mut grown = BytesMut::with_capacity(wanted);
            grown.extend_from_slice(&self.first);
            grown.extend_from_slice(&self.more);
            self.first = Bytes::new();
            self.more = grown;
        }
        self.more.extend_from_slice(&data);
        Ok(())
    }

    fn end(self) -> Bytes {
        let bytes = if self.more.is_empty() {
            self.first
        } else {
            self.more.freeze()
        };
        if bytes.len() <= SMALL {
            bytes
        } else {
            self.place.tie_to(bytes)
        }
    }
}
