//! The bodies of responses: ready, streamed, or passed through.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::outbound::keepalive::comments;
use super::outbound::passed_heartbeat::PassedHeartbeat;
use super::passed_body::PassedBody;
use crate::mcp::sse;
use crate::runner::responder::DeliveryGuard;

/// The body of a response to a client.
pub(super) enum Body {
    Empty,
    /// The whole body. The guard is notified when the bytes were sent.
    Ready {
        bytes: Option<Bytes>,
        /// Taken after the bytes were sent, see [`Body::hold_until_sent`].
        probe: Option<Bytes>,
        guard: Option<DeliveryGuard>,
    },
    /// Server-sent events, read one by one as the client's socket takes them.
    Events(BoxStream<'static, Bytes>),
    /// The wrapped server's own body, frame by frame.
    Passed {
        /// The bytes that raincheck has read.
        begun: Option<Bytes>,
        body: PassedBody,
        /// Progress of raincheck's own between the server's events.
        heartbeat: Option<Box<PassedHeartbeat>>,
        /// A drain waits for the answer.
        _answer: Option<TaskTrackerToken>,
    },
}

impl Body {
    pub(super) fn ready(bytes: impl Into<Bytes>) -> Self {
        Self::Ready {
            bytes: Some(bytes.into()),
            probe: None,
            guard: None,
        }
    }

    /// The server's body behind the bytes that raincheck has read of it. `answer`: a drain waits for it.
    pub(super) fn passed(
        begun: Option<Bytes>,
        body: PassedBody,
        answer: Option<TaskTrackerToken>,
    ) -> Self {
        Self::Passed {
            begun: begun.filter(|begun| !begun.is_empty()),
            body,
            heartbeat: None,
            _answer: answer,
        }
    }

    /// Server-sent events, with comments while there is no event.
    pub(super) fn events(mut events: BoxStream<'static, Bytes>) -> Self {
        let mut comments = comments();
        let both = stream::poll_fn(move |context| match events.poll_next_unpin(context) {
            Poll::Pending => comments.poll_tick(context).map(|_| Some(sse::COMMENT)),
            event @ Poll::Ready(_) => event,
        });
        Self::Events(both.boxed())
    }

    /// Returns `true` if raincheck ended a stream of the server's with an answer of its own.
    pub(super) fn was_answered_here(&self) -> bool {
        let Self::Passed { heartbeat, .. } = self else {
            return false;
        };
        heartbeat.as_ref().is_some_and(|it| it.is_over())
    }

    /// The bytes of a body that is ready.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Ready { bytes, .. } => bytes.as_mut(),
            Self::Empty | Self::Events(_) | Self::Passed { .. } => None,
        }
    }

    /// Makes the guard wait until the answer was sent. Over HTTP/2 a reset discards bytes that the connection has
    /// taken and not sent yet. So white space follows as a second piece: the connection has room for one piece only,
    /// and asks for the second when the answer is on the wire.
    pub(super) fn hold_until_sent(&mut self) {
        if let Self::Ready { probe, guard, .. } = self
            && guard.is_some()
        {
            *probe = Some(PROBE);
        }
    }
}

/// White space in JSON, and an empty line in an event stream.
pub(super) const PROBE: Bytes = Bytes::from_static(b"\n");

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
        let this = self.get_mut();
        // raincheck has answered in this stream. An answer of the server behind it would be a second one.
        if this.was_answered_here() {
            return Poll::Ready(None);
        }
        match this {
            Self::Empty => Poll::Ready(None),
            Self::Ready {
                bytes,
                probe,
                guard,
            } => {
                // There is no probe over HTTP/1.1, where bytes that are taken are written at once.
                let next = bytes.take();
                if next.is_some() && probe.is_some() {
                    return Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))));
                }
                let probe = probe.take();
                if probe.is_none()
                    && let Some(guard) = guard.take()
                {
                    guard.announce();
                }
                Poll::Ready(next.or(probe).map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Events(events) => events
                .poll_next_unpin(context)
                .map(|event| event.map(|e| Ok(Frame::data(e)))),
            Self::Passed { begun, .. } if begun.is_some() => {
                Poll::Ready(begun.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Passed {
                body, heartbeat, ..
            } => {
                // The server's body is polled first: only while it is silent, progress of raincheck's own may be due.
                let polled = body.poll_frame(context);
                let Some(heartbeat) = heartbeat else {
                    return polled;
                };
                let polled = heartbeat.poll_beside(polled, context);
                if heartbeat.is_over() {
                    body.answered();
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            // A connection that stops polling drops the guard, and then the client of a sent answer counts as gone.
            Self::Ready { bytes, guard, .. } => bytes.is_none() && guard.is_none(),
            Self::Events(_) => false,
            // An error may follow a stream that broke.
            Self::Passed {
                heartbeat: Some(heartbeat),
                ..
            } => heartbeat.is_over(),
            Self::Passed { begun, body, .. } => begun.is_none() && body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            // The connection writes this as the length of the body, so the probe must count.
            Self::Ready { bytes, probe, .. } => {
                let pieces = bytes.iter().chain(probe);
                SizeHint::with_exact(pieces.map(Bytes::len).sum::<usize>() as u64)
            }
            // Events are added on the way, so a length of the server's would be wrong.
            Self::Events(_)
            | Self::Passed {
                heartbeat: Some(_), ..
            } => SizeHint::default(),
            Self::Passed { begun, body, .. } => {
                let mut hint = body.size_hint();
                let begun = begun.as_ref().map_or(0, Bytes::len) as u64;
                match hint.exact() {
                    Some(rest) => hint.set_exact(rest + begun),
                    None => hint.set_lower(hint.lower() + begun),
                }
                hint
            }
        }
    }
}
