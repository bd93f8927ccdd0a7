//! The body of a response on its way to the client. Large bodies count against the common memory until the client
//! reads them. Over HTTP/2 they go in pieces, and each request for a piece shows that the one before was sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::{Response, StatusCode, Version};
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::Body;
use super::durations::{Answered, MeasuredAnswer};
use super::giving_way::WholeRequest;
use super::{outbound::response, slow_reader};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::sharing::room::{BufferBudget, BufferShare, SMALL};
use crate::sharing::shares::Share;
use crate::telemetry::limits::{self, LimitHit};

/// The largest piece that an HTTP/2 connection gets at once.
const PIECE: usize = 64 * 1024;

/// The size of the request, in the extensions of its response.
#[derive(Debug, Clone, Copy)]
struct RequestSize(usize);

/// Notes the size of the request on a response that is a stream, because the stream keeps what is known of the
/// request. A part that keeps less notes its own size first.
pub(super) fn with_request_size(bytes: usize, mut response: Response<Body>) -> Response<Body> {
    if matches!(response.body(), Body::Events(_)) {
        let extensions = response.extensions_mut();
        if extensions.get::<RequestSize>().is_none() {
            extensions.insert(RequestSize(bytes));
        }
    }
    response
}

/// The bounds of a response that the credential of its request sets.
#[derive(Debug, Default)]
pub(super) struct CredentialLimits {
    /// The time at which a stream ends, whatever events it would still send. A response that has a length counts as
    /// sent.
    pub(super) end: Option<Instant>,
    /// The share that the caller has until the response is over.
    pub(super) share: Option<Share>,
    /// For as long as the response lasts, its connection does not give way.
    pub(super) request: Option<WholeRequest>,
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A response body as the connection gets it.
pub(super) struct SentBody {
    body: Body,
    end: Option<Pin<Box<Sleep>>>,
    room: Arc<BufferBudget>,
    /// The rest of a piece that was too large. Over HTTP/2 only.
    rest: Bytes,
    in_pieces: bool,
    /// The error of a body that broke. The connection receives it when it asks again: until then it writes the bytes
    /// that it has, which it drops at an error.
    broke: Option<BodyError>,
    _asked: Option<BufferShare>,
    _share: Option<Share>,
    _request: Option<WholeRequest>,
    answering: Option<MeasuredAnswer>,
}

impl SentBody {
    /// Wraps a response. If there is no memory for a ready answer, the client gets an error instead.
    pub(super) fn of(
        (mut response, measured): Answered,
        admitted: CredentialLimits,
        room: &Arc<BufferBudget>,
        version: Version,
    ) -> Response<Self> {
        if let Some(bytes) = response.body_mut().bytes_mut()
            && bytes.len() > SMALL
        {
            match room.count_answer(std::mem::take(bytes)) {
                Some(counted) => *bytes = counted,
                None => response = no_room(),
            }
        }
        let in_pieces = version == Version::HTTP_2;
        if in_pieces {
            response.body_mut().hold_until_sent();
        }
        let asked = response.extensions_mut().remove::<RequestSize>();
        let is_stream = response.body().size_hint().exact().is_none();
        let end = admitted.end.filter(|_| is_stream);
        // After the check for memory, whose refusal may have replaced the answer that is measured.
        let answering = measured.and_then(|asked| asked.answered(&response));
        response.map(|body| Self {
            body,
            end: end.map(|end| Box::pin(sleep_until(end))),
            room: Arc::clone(room),
            rest: Bytes::new(),
            in_pieces,
            broke: None,
            _asked: asked.and_then(|RequestSize(bytes)| room.count(bytes)),
            _share: admitted.share,
            _request: admitted.request,
            answering,
        })
    }

    /// Ends the body with an error, after a pause in which the connection writes what it has.
    fn breaks(&mut self, error: BodyError, context: &Context<'_>) -> Polled {
        self.broke = Some(error);
        // Nothing else wakes this body again.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn piece(&mut self, mut bytes: Bytes) -> Bytes {
        if self.in_pieces && bytes.len() > PIECE {
            self.rest = bytes.split_off(PIECE);
        }
        bytes
    }
}

fn no_room() -> Response<Body> {
    limits::refused(LimitHit::BufferBytes);
    tracing::warn!("an answer was dropped: too much waits for clients (limits.buffer_bytes_max)");
    let failure = Failure::new(Reason::UpstreamTooLarge, SideEffect::Unknown);
    response::refusal(StatusCode::SERVICE_UNAVAILABLE, &failure.to_error())
}

/// Too much waits for clients.
#[derive(Debug, thiserror::Error)]
#[error("there is no room for an event")]
struct NoRoom;

impl HttpBody for SentBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        // The connection asks for more, and so has sent what it had.
        slow_reader::taken();
        if let Some(end) = &mut this.end
            && end.as_mut().poll(context).is_ready()
        {
            // The sender of the stream learns by this that the client is gone.
            this.body = Body::Empty;
            this.rest = Bytes::new();
            return Poll::Ready(None);
        }
        if let Some(error) = this.broke.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if !this.rest.is_empty() {
            let rest = std::mem::take(&mut this.rest);
            slow_reader::given();
            return Poll::Ready(Some(Ok(Frame::data(this.piece(rest)))));
        }
        let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return this.breaks(error, context),
            ended @ None => return Poll::Ready(ended),
        };
        slow_reader::given();
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Poll::Ready(Some(Ok(other))),
        };
        if let Some(answering) = &mut this.answering {
            // An error that raincheck wrote into the server's stream counts even where that stream is not read.
            if this.body.was_answered_here() {
                answering.saw_own(&data);
            } else {
                answering.saw(&data);
            }
        }
        // A ready body was counted in `of`. Events are counted one by one, as they are made.
        let is_event = matches!(this.body, Body::Events(_));
        let data = if is_event {
            match this.room.count_answer(data) {
                Some(data) => data,
                None => return this.breaks(NoRoom.into(), context),
            }
        } else {
            data
        };
        Poll::Ready(Some(Ok(Frame::data(this.piece(data)))))
    }

    fn is_end_stream(&self) -> bool {
        // A body that broke must be polled once more, or its error is lost.
        self.broke.is_none() && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // The connection asks only before the first piece.
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, StreamExt as _};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The stream breaks at its second event, which is too large. The client still gets the first event.
    #[tokio::test]
    async fn what_comes_before_a_break_is_sent() {
        let service = service_fn(async |_: hyper::Request<hyper::body::Incoming>| {
            let large = vec![b'x'; SMALL * 2];
            let events = stream::iter([Bytes::from_static(b"data: 1\n\n"), large.into()]);
            let response = Response::new(Body::Events(events.boxed()));
            let room = BufferBudget::new(SMALL);
            let admitted = CredentialLimits::default();
            let sent = SentBody::of((response, None), admitted, &room, Version::HTTP_11);
            Ok::<_, std::convert::Infallible>(sent)
        });
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let mut heard = Vec::new();
        let (served, read) = tokio::join!(connection, client.read_to_end(&mut heard));
        assert!(served.is_err(), "the stream broke");
        read.unwrap();
        let heard = String::from_utf8(heard).unwrap();
        assert!(heard.contains("data: 1"), "{heard}");
        assert!(!heard.contains("0\r\n\r\n"), "it has no end");
    }
}
