//! Passes requests and answers through: nothing is parsed, buffered or reordered.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::body::Body;
use super::outbound::response::{self, Rpc};
use super::proxy::Proxy;
use crate::mcp::error::{Failure, RpcError};
use crate::mcp::json::Object;
use crate::upstream::http::{RequestBody, ResponseBody};

// The head of a request is boxed, because each future on its way would keep room for a copy of it.

/// Passes a request without a body. Only a POST has a body, which `endpoint` checks.
pub(super) async fn bare(proxy: &Arc<Proxy>, parts: Box<Parts>) -> Response<Body> {
    pass(proxy, parts, RequestBody::empty()).await
}

/// Passes a request whose body was read.
pub(super) async fn bytes(proxy: &Arc<Proxy>, parts: Box<Parts>, body: Bytes) -> Response<Body> {
    pass(proxy, parts, RequestBody::Ready(body)).await
}

async fn pass(proxy: &Arc<Proxy>, parts: Box<Parts>, body: RequestBody) -> Response<Body> {
    // The error of a request that gets no answer has its id.
    let message = body.bytes().clone();
    // Only a POST has an answer that comes to an end, so that a drain can wait for it.
    let answer = (parts.method == Method::POST).then(|| proxy.passing.token());
    match proxy.upstream.pass(parts, body).await {
        Ok(response) => response.map(|body| Body::Passed {
            begun: None,
            body,
            heartbeat: None,
            _answer: answer,
        }),
        Err(failure) => unanswered(&failure, &message),
    }
}

/// The server's answer to a request that is no POST.
pub(super) fn response(response: Response<ResponseBody>) -> Response<Body> {
    response.map(|body| Body::Passed {
        begun: None,
        body,
        heartbeat: None,
        _answer: None,
    })
}

/// Answers a request that has no answer of the server, under its id if that can be read.
fn unanswered(failure: &Failure, message: &[u8]) -> Response<Body> {
    let id = Object::parse(std::str::from_utf8(message).unwrap_or_default())
        .ok()
        .filter(|members| members.contains("method"))
        .and_then(|members| members.get("id").map(ToOwned::to_owned))
        .filter(|id| {
            id.get().starts_with(['"', '-']) || id.get().starts_with(|c: char| c.is_ascii_digit())
        });
    match id {
        Some(id) => Rpc::unanswered(id.get(), failure).into_response(),
        None => unreachable_upstream(failure),
    }
}

/// Answers a request that did not reach the server and has no JSON-RPC id.
pub(super) fn unreachable_upstream(failure: &Failure) -> Response<Body> {
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
