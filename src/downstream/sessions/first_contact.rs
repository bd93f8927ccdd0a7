//! Messages of legacy clients while raincheck does not know yet which transport and era the server speaks.
//!
//! The messages pass as to any other server. A server that refuses them may speak only HTTP+SSE, or only the modern
//! era. raincheck then asks the server, and gives the client a session of its own.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::servers_own::{held_call, pass_on};
use super::{ours, over_line};
use crate::downstream::body::Body;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::{calls::resumable, passthrough};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::version::Era;

/// The largest body in which raincheck looks for a refusal.
const REFUSAL_BYTES_MAX: u64 = 64 * 1024;

pub(super) async fn post(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: Box<Parts>,
    body: &Bytes,
    message: &LegacyMessage<'_>,
    edit: Option<Box<AnswerEdit>>,
) -> Response<Body> {
    let again = edit.clone();
    let response = match held_call(by, &parts.headers, message) {
        // The session began at another replica, or before a restart.
        Some(call) => resumable::post(proxy, by, (*parts).clone(), body.clone(), call).await,
        None => pass_on(proxy, parts.clone(), body.clone(), edit).await,
    };
    if matches!(response.body(), Body::Events(_)) {
        // raincheck began this stream itself: the server may not have answered yet.
        return response;
    }
    if is_answer(&response) {
        proxy.upstream.answered_over_http();
    } else if turns_out_old(proxy, by, response.status()).await {
        return over_line::post(proxy, by, &parts, body, message, again).await;
    }
    if !is_initialize(&parts, message) {
        return response;
    }
    let (response, is_refused) = look_for_refusal(response).await;
    if is_refused && ours::turns_out_to_serve(proxy, by, &parts.headers).await {
        return ours::post(proxy, by, &parts, body, message).await;
    }
    response
}

/// Whether a response is one of Streamable HTTP. A web page, or a gateway that accepts every request, proves nothing
/// about the server.
fn is_answer<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    response.status() == StatusCode::OK
        && ["application/json", "text/event-stream"]
            .iter()
            .any(|known| kind.eq_ignore_ascii_case(known))
}

/// Whether the message begins a session at a server over HTTP that may refuse sessions. `known`: the era that was
/// known before raincheck decided whose session this is.
pub(super) fn may_be_refused(
    proxy: &Arc<Proxy>,
    known: Option<Era>,
    parts: &Parts,
    message: &LegacyMessage<'_>,
) -> bool {
    known != Some(Era::Modern) && proxy.upstream.speaks_http() && is_initialize(parts, message)
}

fn is_initialize(parts: &Parts, message: &LegacyMessage<'_>) -> bool {
    // A client that names a session has initialized.
    !parts.headers.contains_key(SESSION_ID) && message.asks_for("initialize")
}

/// Whether the server refuses legacy clients: its status says so, or an error in a small body. The response is
/// returned with its body.
async fn look_for_refusal(response: Response<Body>) -> (Response<Body>, bool) {
    let status = response.status();
    if !status.is_success() {
        let is_about_else = matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
        );
        return (response, status.is_client_error() && !is_about_else);
    }
    if !is_small_json(&response) {
        return (response, false);
    }
    let (head, body) = response.into_parts();
    // A body that was cut off reaches the client as it is: it is not JSON.
    let bytes = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let bytes = bytes.unwrap_or_default();
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let is_refused = Object::parse(text).is_ok_and(|answer| answer.contains("error"));
    (Response::from_parts(head, Body::ready(bytes)), is_refused)
}

fn is_small_json(response: &Response<Body>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let length = response.body().size_hint().exact();
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
        && length.is_some_and(|length| length <= REFUSAL_BYTES_MAX)
}

/// Answers GET and DELETE.
pub(super) async fn other(proxy: &Arc<Proxy>, by: &Requester, parts: Box<Parts>) -> Response<Body> {
    let response = passthrough::bare(proxy, parts.clone()).await;
    if turns_out_old(proxy, by, response.status()).await {
        return over_line::answer(proxy, by, &parts);
    }
    response
}

async fn turns_out_old(proxy: &Arc<Proxy>, by: &Requester, status: StatusCode) -> bool {
    let may_be = matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    );
    let credentials = by.credentials.clone();
    may_be && proxy.upstream.era_soon(credentials).await.is_some() && !proxy.upstream.speaks_http()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_of_the_transport_decides_on_it() {
        let said = |status, kind: &str| {
            let response = Response::builder().status(status);
            is_answer(&response.header("content-type", kind).body(()).unwrap())
        };
        assert!(said(200, "application/json"));
        assert!(said(200, "text/event-stream; charset=utf-8"));
        assert!(said(200, "Application/JSON;charset=utf-8"));
        for (status, kind) in [
            (200, "text/html"),
            (200, "application/jsonl"),
            (202, "application/json"),
            (204, "text/event-stream"),
            (404, "application/json"),
        ] {
            assert!(!said(status, kind), "{status} {kind}");
        }
        assert!(!is_answer(&Response::new(())));
    }
}
