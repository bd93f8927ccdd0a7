//! Passing through: bytes in, bytes out, nothing parsed, buffered or reordered.

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::body::Body;
use super::outbound::response;
use super::proxy::Shared;
use crate::mcp::error::{Failure, RpcError};
use crate::upstream::http::{RequestBody, ResponseBody};

/// A request without a body: the door refuses one on everything but a POST.
pub(super) async fn bare(front: &Shared, parts: Parts) -> Response<Body> {
    pass(front, parts, RequestBody::empty()).await
}

/// A request whose body was looked at and found to be the server's own business.
pub(super) async fn bytes(front: &Shared, parts: Parts, body: Bytes) -> Response<Body> {
    pass(front, parts, RequestBody::Ready(Full::new(body))).await
}

pub(super) async fn again(front: &Shared, parts: &Parts, body: Bytes) -> Response<Body> {
    bytes(front, parts.clone(), body).await
}

async fn pass(front: &Shared, parts: Parts, body: RequestBody) -> Response<Body> {
    // A POST has an answer that comes to an end; the other streams of a session need not.
    let answer = (parts.method == Method::POST).then(|| front.passing.token());
    match front.upstream.pass(parts, body).await {
        Ok(response) => response.map(|body| Body::Passed {
            begun: None,
            body,
            _answer: answer,
        }),
        Err(failure) => unreachable_upstream(failure),
    }
}

/// The server's answer to a request that is no POST.
pub(super) fn response(response: Response<ResponseBody>) -> Response<Body> {
    response.map(|body| Body::Passed {
        begun: None,
        body,
        _answer: None,
    })
}

/// There is no JSON-RPC id to answer under: this request was never read.
pub(super) fn unreachable_upstream(failure: Failure) -> Response<Body> {
    let RpcError {
        code,
        message,
        data,
    } = failure.to_error();
    response::refusal(
        StatusCode::BAD_GATEWAY,
        &RpcError {
            code,
            message,
            data,
        },
    )
}
