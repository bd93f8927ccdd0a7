//! A collector of traces that takes OTLP over gRPC, on hyper's HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response, Version};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::collector::{Got, spans};
use crate::hyper_server::{Body, empty, response, serve};

const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The server. Dropping it ends it.
pub(crate) struct GrpcServer {
    pub(crate) url: String,
    job: JoinHandle<()>,
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.job.abort();
    }
}

impl GrpcServer {
    /// Answers every export with this status.
    pub(crate) async fn start(got: &Arc<watch::Sender<Got>>, status: &Arc<AtomicU16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (got, status) = (Arc::clone(got), Arc::clone(status));
        let job = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (got, status) = (Arc::clone(&got), Arc::clone(&status));
                tokio::spawn(serve(stream, true, move |request| {
                    let (got, status) = (Arc::clone(&got), status.load(Ordering::Relaxed));
                    async move { export(&got, status, request).await }
                }));
            }
        });
        Self { url, job }
    }
}

async fn export(
    got: &watch::Sender<Got>,
    status: u16,
    request: Request<Incoming>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let header = |name| head.headers.get(name).map(HeaderValue::as_bytes);
    let is_export = head.version == Version::HTTP_2
        && head.uri.path() == METHOD
        && header("content-type") == Some(b"application/grpc")
        && header("te") == Some(b"trailers");
    if !is_export {
        return empty(404);
    }
    let body = body.collect().await.unwrap().to_bytes();
    let (prefix, message) = (&body[..5], body.slice(5..));
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    assert_eq!((prefix[0], &prefix[1..]), (0, &length[..]));
    got.send_modify(|got| {
        if status == 0 {
            got.spans.extend(spans(&message));
        }
        got.headers.push(head.headers.clone());
        got.bodies.push(message.clone());
    });
    let said = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(status))]);
    if status != 0 {
        // A failure is headers alone.
        let mut failed = response(200, "application/grpc", empty(200).into_body());
        failed.headers_mut().extend(said);
        return failed;
    }
    let taken = Frame::data(Bytes::from_static(&[0; 5]));
    let frames = stream::iter([Ok(taken), Ok(Frame::trailers(said))]);
    response(
        200,
        "application/grpc",
        StreamBody::new(frames).boxed_unsync(),
    )
}
