//! The body of a response of the wrapped server, over either version of HTTP.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use hyper::{HeaderMap, Response};

use crate::mcp::error::Failure;
use crate::upstream::http::coding::{Decoding, codings};
use crate::upstream::http::http1::PooledConnection;
use crate::upstream::http::http2::connections::StreamPlace;
use crate::upstream::http::request_body::BoxError;

/// A response body. If raincheck drops the body before its end, it closes the connection or resets the stream, and so tells the
/// server to stop.
#[derive(Debug)]
pub struct ResponseBody(Source);

#[derive(Debug)]
enum Source {
    /// When it is read to its end, its connection goes back to the pool. When it is dropped before, the connection
    /// is closed.
    Http1 {
        incoming: Incoming,
        home: Option<PooledConnection>,
    },
    /// When it is dropped before its end, its stream is reset, and the connection stays.
    Http2 {
        stream: RecvStream,
        /// The number of bytes that are still to come. `None`: the server did not say.
        left: Option<u64>,
        place: Option<StreamPlace>,
    },
    /// The body of another response, decoded.
    Decoded(Decoding),
}

impl ResponseBody {
    pub(super) fn over_http1(incoming: Incoming, connection: PooledConnection) -> Self {
        Self(Source::Http1 {
            incoming,
            home: Some(connection),
        })
    }

    pub(super) fn over_http2(stream: RecvStream, head: &HeaderMap, place: StreamPlace) -> Self {
        let length = head.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        Self(Source::Http2 {
            stream,
            left: length.and_then(|length| length.parse().ok()),
            place: Some(place),
        })
    }

    /// Gives the connection, or the place on it, to the next request.
    fn go_home(&mut self) {
        match &mut self.0 {
            Source::Http1 { home, .. } => {
                if let Some(connection) = home.take() {
                    connection.give_back();
                }
            }
            Source::Http2 { place, .. } => *place = None,
            Source::Decoded(_) => {}
        }
    }

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Source::Http1 { incoming, home } => {
                let frame = ready!(Pin::new(incoming).poll_frame(context));
                if let Some(Err(_)) = frame {
                    // Otherwise `drop` could give the broken connection to another request.
                    *home = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Source::Http2 { stream, left, .. } => {
                let data = ready!(stream.poll_data(context));
                Poll::Ready(data.map(|data| {
                    let data = data?;
                    // What was taken makes room for more: a client that reads slowly slows its own stream only.
                    stream.flow_control().release_capacity(data.len())?;
                    *left = left.map(|left| left.saturating_sub(data.len() as u64));
                    Ok(Frame::data(data))
                }))
            }
            Source::Decoded(decoding) => {
                let data = ready!(decoding.poll_data(context));
                Poll::Ready(data.map(|data| data.map(Frame::data).map_err(Into::into)))
            }
        }
    }
}

/// The response with its body as it was before it was coded. `Err`: it has a coding that cannot be undone.
pub(in crate::upstream) fn decoded(
    mut response: Response<ResponseBody>,
) -> Result<Response<ResponseBody>, (Failure, Box<Response<ResponseBody>>)> {
    if !response.headers().contains_key(CONTENT_ENCODING) {
        return Ok(response);
    }
    let codings = match codings(response.headers()) {
        Ok(codings) => codings,
        Err(failure) => return Err((failure, Box::new(response))),
    };
    response.headers_mut().remove(CONTENT_ENCODING);
    if codings.is_empty() {
        return Ok(response);
    }
    // It is the length of the coded body.
    response.headers_mut().remove(CONTENT_LENGTH);
    Ok(response.map(|body| ResponseBody(Source::Decoded(Decoding::of(body, &codings)))))
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = ready!(this.poll_data(context));
        match &frame {
            None => this.go_home(),
            // A reader that has the last bytes need not poll again, so the connection goes back now.
            Some(Ok(_)) if this.is_end_stream() => this.go_home(),
            Some(_) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1 { incoming, .. } => incoming.is_end_stream(),
            Source::Http2 { stream, .. } => stream.is_end_stream(),
            Source::Decoded(decoding) => decoding.has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1 { incoming, .. } => incoming.size_hint(),
            Source::Http2 { stream, .. } if stream.is_end_stream() => SizeHint::with_exact(0),
            Source::Http2 { left, .. } => left.map_or_else(SizeHint::new, SizeHint::with_exact),
            Source::Decoded(_) => SizeHint::new(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // An empty body is at its end before it was polled.
        if self.is_end_stream() {
            self.go_home();
        }
    }
}
