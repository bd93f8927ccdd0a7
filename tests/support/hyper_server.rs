//! The server's side of HTTP, for servers of the tests whose HTTP is right: hyper writes it.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderValue;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers the requests of a connection so, over HTTP/1.1 and HTTP/2. A client that leaves drops the answers.
pub(crate) async fn serve<F>(
    stream: TcpStream,
    keeps_alive: bool,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(|request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().keep_alive(keeps_alive);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

pub(crate) fn json(status: u16, text: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(text.into()).boxed_unsync();
    response(status, "application/json", body)
}

pub(crate) fn empty(status: u16) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Streams events. Each item is sent as it is, as soon as it is there.
pub(crate) fn event_stream(events: impl Stream<Item = String> + Send + 'static) -> Response<Body> {
    let frames = events.map(|event| Ok(Frame::data(event.into())));
    response(
        200,
        "text/event-stream",
        StreamBody::new(frames).boxed_unsync(),
    )
}

pub(crate) fn response(status: u16, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = empty(status);
    *response.body_mut() = body;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert("content-type", kind);
    response
}
