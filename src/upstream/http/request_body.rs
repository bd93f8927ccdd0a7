//! The body of a request to the wrapped server.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::base::failpoint::{Point, hit};

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request to the wrapped server. Empty once it was taken.
#[derive(Debug, Clone)]
pub enum RequestBody {
    Ready(Bytes),
    /// A call of a tool.
    Call(Bytes),
}

impl RequestBody {
    pub fn empty() -> Self {
        Self::Ready(Bytes::new())
    }

    pub fn json(text: String) -> Self {
        Self::Ready(text.into())
    }

    pub(in crate::upstream) fn call(text: String) -> Self {
        Self::Call(text.into())
    }

    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Ready(bytes) | Self::Call(bytes) => bytes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Takes the bytes, for the connection.
    pub(super) fn take(&mut self) -> Bytes {
        match self {
            Self::Ready(bytes) => std::mem::take(bytes),
            Self::Call(bytes) => {
                hit(Point::SentAfter);
                std::mem::take(bytes)
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let data = (!this.is_empty()).then(|| this.take());
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}
