//! Passes requests and answers through: nothing is parsed, buffered or reordered.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde_json::value::RawValue;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::body::Body;
use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use super::outbound::response;
use super::passed_body::PassedBody;
use super::passing::{PassedResponse, PassingRequest, ResponseRest};
use super::proxy::Proxy;
use crate::mcp::error::Failure;
use crate::upstream::http::{RequestBody, ResponseBody};

// The head of a request is boxed, because each future on its way would keep room for a copy of it.

/// Passes a request without a body. Only a POST has a body, which `endpoint` checks.
pub(super) async fn bare(proxy: &Arc<Proxy>, parts: Box<Parts>) -> Response<Body> {
    let passed = pass(proxy, parts, RequestBody::empty()).await;
    passed.unwrap_or_else(|failure| unreachable_upstream(&failure, None))
}

/// Passes a request whose body was read.
pub(super) async fn bytes(proxy: &Arc<Proxy>, parts: Box<Parts>, body: Bytes) -> Response<Body> {
    // The copy shares its memory. It is read only after a failure, for the id of the request.
    let sent = body.clone();
    let passed = pass(proxy, parts, RequestBody::Ready(body)).await;
    passed.unwrap_or_else(|failure| {
        let message = Inbound::read(&sent);
        unreachable_upstream(&failure, message.request_id())
    })
}

async fn pass(
    proxy: &Arc<Proxy>,
    parts: Box<Parts>,
    body: RequestBody,
) -> Result<Response<Body>, Failure> {
    // Only a POST has an answer that comes to an end, so that a drain can wait for it.
    let answer = (parts.method == Method::POST).then(|| proxy.passing.token());
    Ok(response(proxy.upstream.pass(parts, body).await?, answer))
}

/// Passes a modern client's request. `is_call`: it is a `tools/call`.
pub(super) async fn request(
    proxy: &Arc<Proxy>,
    by: &Requester,
    is_call: bool,
    (parts, body): (Box<Parts>, Bytes),
) -> Response<Body> {
    if is_call && let Some(call) = PassingRequest::of((&proxy.runner, &proxy.upstream), by, &body) {
        return self::call(proxy, parts, &body, call).await;
    }
    bytes(proxy, parts, body).await
}

/// Passes a `tools/call`. If its client's clock ends before the answer has passed, the call runs on.
async fn call(
    proxy: &Arc<Proxy>,
    parts: Box<Parts>,
    sent: &Bytes,
    call: PassingRequest<'_>,
) -> Response<Body> {
    let (upstream, body) = (Arc::clone(&proxy.upstream), sent.clone());
    // Taken before the request is sent: a drain that begins meanwhile waits for the answer.
    let answer = proxy.passing.token();
    let response = async move { upstream.pass(parts, RequestBody::Ready(body)).await };
    let response: PassedResponse = response.boxed();
    let mut passing = ResponseRest::new(Some(call), response);
    match (&mut passing).await {
        Ok(passed) => {
            let (head, body) = passed.into_parts();
            let body = PassedBody::of_call(&head.headers, body, passing.passed());
            Response::from_parts(head, Body::passed(None, body, Some(answer)))
        }
        Err(failure) => unreachable_upstream(&failure, Inbound::read(sent).request_id()),
    }
}

/// The server's answer as it is. `answer`: a drain waits for it.
pub(super) fn response(
    response: Response<ResponseBody>,
    answer: Option<TaskTrackerToken>,
) -> Response<Body> {
    response.map(|body| Body::passed(None, PassedBody::Plain(body), answer))
}

/// Answers a request that did not reach the server. `id`: its JSON-RPC id, if it could be read.
pub(super) fn unreachable_upstream(failure: &Failure, id: Option<&RawValue>) -> Response<Body> {
    response::refusal_of(id, StatusCode::BAD_GATEWAY, &failure.to_error())
}
