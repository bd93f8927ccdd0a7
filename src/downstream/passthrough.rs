//! Passing through: bytes in, bytes out, nothing parsed, buffered or reordered.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::body::Body;
use super::outbound::response;
use super::proxy::Proxy;
use crate::mcp::error::{Failure, RpcError};
use crate::upstream::http::{RequestBody, ResponseBody};

/// A request without a body: the door refuses one on everything but a POST.
pub(super) async fn bare(proxy: &Arc<Proxy>, parts: Parts) -> Response<Body> {
    pass(proxy, parts, RequestBody::empty()).await
}

/// A request whose body was looked at and found to be the server's own business.
pub(super) async fn bytes(proxy: &Arc<Proxy>, parts: Parts, body: Bytes) -> Response<Body> {
    pass(proxy, parts, RequestBody::Ready(Full::new(body))).await
}

pub(super) async fn again(proxy: &Arc<Proxy>, parts: &Parts, body: Bytes) -> Response<Body> {
    bytes(proxy, parts.clone(), body).await
}

async fn pass(proxy: &Arc<Proxy>, parts: Parts, body: RequestBody) -> Response<Body> {
    // A POST has an answer that comes to an end; the other streams of a session need not.
    let answer = (parts.method == Method::POST).then(|| proxy.passing.token());
    match proxy.upstream.pass(parts, body).await {
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
