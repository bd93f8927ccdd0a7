//! Response bodies: what is ready, what streams, what passes through.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::runner::seat::Guard;
use crate::upstream::http::ResponseBody;

/// The body of a response to a client.
pub(super) enum Body {
    Empty,
    /// All there is. The guard is told once the bytes were handed to the connection.
    Ready {
        bytes: Option<Bytes>,
        guard: Option<Guard>,
        until_sent: bool,
    },
    /// Server-sent events, read one by one as the client's socket takes them.
    Events(BoxStream<'static, Bytes>),
    /// The wrapped server's own body, frame by frame.
    Passed(ResponseBody),
}

impl Body {
    pub(super) fn ready(bytes: impl Into<Bytes>) -> Self {
        Self::Ready {
            bytes: Some(bytes.into()),
            guard: None,
            until_sent: false,
        }
    }

    /// For HTTP/2, where a reset discards what was taken from the body and not yet sent: the
    /// guard is told when the connection asks for more, which it does after it sent the bytes
    /// (the listener leaves it no room before).
    pub(super) fn hold_until_sent(&mut self) {
        if let Self::Ready { until_sent, .. } = self {
            *until_sent = true;
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Ready {
                bytes,
                guard,
                until_sent,
            } => {
                let bytes = bytes.take();
                if (bytes.is_none() || !*until_sent)
                    && let Some(guard) = guard.take()
                {
                    guard.announce();
                }
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Events(events) => Pin::new(events)
                .poll_next(context)
                .map(|event| event.map(|e| Ok(Frame::data(e)))),
            Self::Passed(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|f| f.map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Ready { bytes, guard, .. } => bytes.is_none() && guard.is_none(),
            Self::Events(_) => false,
            Self::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Ready { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::Events(_) => SizeHint::default(),
            Self::Passed(body) => body.size_hint(),
        }
    }
}
