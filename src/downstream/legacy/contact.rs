//! The first words of a legacy client to a server of which nobody knows yet how it is spoken to.
//!
//! They pass as to any server. One that refuses them may speak HTTP+SSE only, or be of the modern era
//! only: then it is asked, and the client has a session here.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::on_http::{held_call, pass_on};
use super::{lines, stream};
use crate::downstream::body::Body;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Shared;
use crate::downstream::{calls::resumable, facade, pass};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::version::Era;

/// An answer larger than this is no refusal.
const REFUSAL_BYTES_MAX: u64 = 64 * 1024;

pub(super) async fn post(
    front: &Shared,
    by: &Requester,
    parts: Parts,
    body: &Bytes,
    message: &LegacyMessage<'_>,
    edit: Option<Box<AnswerEdit>>,
) -> Response<Body> {
    let again = edit.clone();
    let response = match held_call(front, by, &parts.headers, message) {
        // Of a session that began at another replica, or before a restart.
        Some(call) => resumable::post(front, by, parts.clone(), body.clone(), call).await,
        None => pass_on(front, parts.clone(), body.clone(), edit).await,
    };
    if matches!(response.body(), Body::Events(_)) {
        // Our own words: the server may have said none yet.
        return response;
    }
    if is_answer(&response) {
        front.upstream.answered_over_http();
    } else if turns_out_old(front, by, response.status()).await {
        return lines::post(front, by, &parts, body, message, again).await;
    }
    if !is_initialize(&parts, message) {
        return response;
    }
    let (response, is_refused) = look_for_refusal(response).await;
    if is_refused && facade::turns_out_to_serve(front, by, &parts.headers).await {
        return facade::post(front, by, &parts, body, message).await;
    }
    response
}

/// What a server of Streamable HTTP says to a request. A page that greets everybody, or a gateway that
/// accepts whatever comes, tells nothing of the server.
fn is_answer<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    response.status() == StatusCode::OK
        && ["application/json", "text/event-stream"]
            .iter()
            .any(|known| kind.eq_ignore_ascii_case(known))
}

/// Whether these are first words to a server that answers over HTTP and may be of the modern era, or
/// may be so by now. `known`: what was known of it when it was asked whether the client has a session here.
pub(super) fn may_be_refused(
    front: &Shared,
    known: Option<Era>,
    parts: &Parts,
    message: &LegacyMessage<'_>,
) -> bool {
    known != Some(Era::Modern) && front.upstream.speaks_http() && is_initialize(parts, message)
}

fn is_initialize(parts: &Parts, message: &LegacyMessage<'_>) -> bool {
    // A client that has a session is past that.
    !parts.headers.contains_key(SESSION_ID) && message.asks_for("initialize")
}

/// Whether the server wants no such client: by its status, or by an error in a small body. What was
/// read of it is put back.
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
    // Cut off, it is so for the client, too: not JSON.
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

/// Whether it is decided by now how the server is spoken to: asked where a client opens a stream that is read here.
pub(super) async fn is_decided_now(front: &Shared, by: &Requester, parts: &Parts) -> bool {
    if !stream::is_read(parts) {
        return false;
    }
    // From before raincheck was started: who has a session was answered already.
    let known = front.upstream.era_soon(by.credentials.clone()).await;
    known.is_some() && front.upstream.is_decided()
}

/// GET and DELETE.
pub(super) async fn other(front: &Shared, by: &Requester, parts: Parts) -> Response<Body> {
    let response = pass::bare(front, parts.clone()).await;
    if turns_out_old(front, by, response.status()).await {
        return lines::answer(front, by, &parts);
    }
    response
}

async fn turns_out_old(front: &Shared, by: &Requester, status: StatusCode) -> bool {
    let may_be = matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    );
    let credentials = by.credentials.clone();
    may_be && front.upstream.era_soon(credentials).await.is_some() && !front.upstream.speaks_http()
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
