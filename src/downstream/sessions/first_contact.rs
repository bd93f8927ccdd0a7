//! Messages of legacy clients while raincheck does not know yet which transport and era the server speaks.
//!
//! The messages pass as to any other server. A server that refuses them may speak only HTTP+SSE, or only the modern
//! era. raincheck then asks the server, and gives the client a session of its own.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Body as _;
use hyper::http::request::Parts;

use super::servers_own::pass_on;
use super::{hosted, over_line};
use crate::downstream::body::Body;
use crate::downstream::calls::resumable::{self, ResumableCall};
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::first_contact::{
    AnswerRoute, FirstReplyFacts, route_answer,
};
use crate::downstream::passthrough;
use crate::downstream::proxy::Proxy;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;

/// Follows the route of a message's answer. The route is decided again when more is known.
pub(super) async fn post(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: Box<Parts>,
    body: &Bytes,
    message: &LegacyMessage<'_>,
    edit: Option<Box<AnswerEdit>>,
) -> Response<Body> {
    // The first attempt consumes the edit, and the message may go out a second time, over a line.
    let again = edit.clone();
    let call = |asked| ResumableCall::of(by, &parts.headers, asked);
    let mut response = match message.request().and_then(call) {
        // The session began at another replica, or before a restart.
        Some(call) => resumable::post(proxy, by, (*parts).clone(), body.clone(), call).await,
        None => pass_on(proxy, parts.clone(), body.clone(), edit).await,
    };
    let mut known = known_of(&response, begins_session(&parts, message));
    if known.proves_http() {
        proxy.upstream.answered_over_http();
    }
    loop {
        match route_answer(&known) {
            AnswerRoute::AskTransport => known.is_line = Some(is_line(proxy, by).await),
            AnswerRoute::ReadBody => {
                let (read, has_error) = read_error(response).await;
                (response, known.has_error) = (read, Some(has_error));
            }
            AnswerRoute::AskEra => {
                let headers = &parts.headers;
                let serves = hosted::turns_out_to_serve(proxy, by, headers).await;
                known.is_hosted = Some(serves);
            }
            AnswerRoute::Line => {
                // The refusal shows that the server did not take the message on this path, so it is sent once more.
                return over_line::post(proxy, by, &parts, body, message, again).await;
            }
            AnswerRoute::Hosted => return hosted::post(proxy, by, &parts, body, message).await,
            AnswerRoute::Pass => return response,
        }
    }
}

/// Answers GET and DELETE, which begin no session.
pub(super) async fn other(proxy: &Arc<Proxy>, by: &Requester, parts: Box<Parts>) -> Response<Body> {
    let response = passthrough::bare(proxy, parts.clone()).await;
    let mut known = known_of(&response, false);
    if route_answer(&known) == AnswerRoute::AskTransport {
        known.is_line = Some(is_line(proxy, by).await);
    }
    if route_answer(&known) == AnswerRoute::Line {
        return over_line::answer(proxy, by, &parts);
    }
    response
}

/// Returns `true` if the message begins a session. A client that names a session has initialized.
pub(super) fn begins_session(parts: &Parts, message: &LegacyMessage<'_>) -> bool {
    !parts.headers.contains_key(SESSION_ID) && message.asks_for("initialize")
}

fn known_of(response: &Response<Body>, begins: bool) -> FirstReplyFacts {
    let length = response.body().size_hint().exact();
    let mut known = FirstReplyFacts::of(response.status(), response.headers(), length, begins);
    known.is_ours = matches!(response.body(), Body::Events(_));
    known
}

/// Asks the server whether it is spoken to over a line.
async fn is_line(proxy: &Arc<Proxy>, by: &Requester) -> bool {
    let era = proxy.upstream.era_soon(by.credentials.clone()).await;
    // While the transport is open, a server with an address counts as HTTP. Only an era shows that it was asked.
    era.is_some() && !proxy.upstream.speaks_http()
}

/// Returns `true` if the body is an error. The response is returned with its body.
async fn read_error(response: Response<Body>) -> (Response<Body>, bool) {
    let (head, body) = response.into_parts();
    // A body that was cut off reaches the client as it is: it is not JSON.
    let bytes = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let bytes = bytes.unwrap_or_default();
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let has_error = Object::parse(text).is_ok_and(|answer| answer.contains("error"));
    (Response::from_parts(head, Body::ready(bytes)), has_error)
}
