//! Legacy clients: what of their sessions raincheck reads, and what passes as it is.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Response};

use super::body::Body;
use super::inbound::requester::Requester;
use super::intake::{Read, read};
use super::outbound::response::Rpc;
use super::proxy::{Front, Shared};
use super::tasks::v2025::Looked;
use super::{calls::resumable, facade, pass, sent, tasks::v2025};

pub mod agreed;
pub(super) mod calls;
pub mod carried;
mod contact;
mod leaving;
mod lines;
mod on_http;
pub mod pushes;
mod stream;
pub(super) mod words;

use crate::mcp::headers::SESSION_ID;
use crate::mcp::version::Era;
use crate::task::policy::{Plan, plan};
use on_http::{held_call, pass_on};
use words::Words;

/// A message, a stream or the end of a session, from the network.
pub(super) async fn answer(front: &Shared, parts: Parts, body: Incoming) -> Response<Body> {
    if parts.method != Method::POST {
        return other(front, parts).await;
    }
    match read(front, body).await {
        Read::Whole(body) => {
            let bytes = body.len();
            let by = front.requester(&parts, Era::Legacy);
            sent::asked_with(bytes, Box::pin(post(front, &by, parts, body)).await)
        }
        Read::Refused(refusal) => refusal,
    }
}

/// A message, whose body was read.
pub(super) async fn post(
    front: &Shared,
    by: &Requester,
    parts: Parts,
    body: Bytes,
) -> Response<Body> {
    if let Some(refusal) = front.refuses_message(&parts, &body) {
        return refusal;
    }
    let mut parts = front.agreed.completed(by, parts);
    let body = front.hide_our_ids(&mut parts, body).await;
    // What is learnt meanwhile came too late for the question that follows.
    let known = front.upstream.known_era();
    if facade::serves(front, by, &parts.headers).await {
        return Box::pin(facade::post(front, by, &parts, body)).await;
    }
    v2025::complete_version(&mut parts, &body);
    let edit = match v2025::look(front, by, &parts, &body).await {
        Looked::Answered(response) => return response,
        Looked::Pass(edit) => edit,
    };
    let words = Words::of(&body);
    if let Some(answered) =
        Box::pin(calls::post(front, by, &parts, &body, &words, edit.as_ref())).await
    {
        return answered;
    }
    if let Some(refusal) = only_as_task(front, &parts, &words) {
        return refusal;
    }
    if !front.upstream.is_decided() || contact::may_be_refused(front, known, &parts, &body) {
        drop(words);
        return Box::pin(contact::post(front, by, parts, body, edit)).await;
    }
    if front.upstream.speaks_http() {
        return match held_call(front, by, &parts.headers, words) {
            Some(call) => resumable::post(front, by, parts, body, call).await,
            None => pass_on(front, by, parts, body, edit).await,
        };
    }
    lines::post(front, by, &parts, &body, edit).await
}

/// The refusal of a call whose tool runs as a task only, and which is none. The rule holds whatever
/// revision the session speaks: in those before 2025-11-25 nobody can ask for a task.
fn only_as_task(front: &Front, parts: &Parts, words: &Words<'_>) -> Option<Response<Body>> {
    let Words::Request(request) = words else {
        return None;
    };
    if request.method != "tools/call" || v2025::wishes(&parts.headers, &request.params) {
        return None;
    }
    let name = request.params.get_str("name")?;
    let rule = front.rules.for_tool(&name).0;
    (plan(rule, false, false) == Plan::Refuse).then(|| {
        let refused = Rpc::error(request.id.get(), &v2025::only_as_task());
        refused.on_session().into_response()
    })
}

/// The client ends its session: what of ours runs there ends at once, whatever the server says.
fn end(front: &Shared, by: &Requester, parts: &Parts) {
    if parts.headers.contains_key(SESSION_ID)
        && let Some(session) = front
            .upstream
            .client_session(&parts.headers, *by.caller.as_bytes())
    {
        session.end();
    }
}

/// GET and DELETE.
pub(super) async fn other(front: &Shared, parts: Parts) -> Response<Body> {
    let by = &front.requester(&parts, Era::Legacy);
    let parts = front.agreed.completed(by, parts);
    if let Some(replayed) = resumable::resume(front, by, &parts).await {
        return replayed;
    }
    let is_get = parts.method == Method::GET;
    let response = other_answer(front, by, parts).await;
    if is_get && response.status().is_success() {
        v2025::stream_opened(front, by);
    }
    response
}

async fn other_answer(front: &Shared, by: &Requester, parts: Parts) -> Response<Body> {
    if facade::serves(front, by, &parts.headers).await {
        return Box::pin(facade::other(front, by, &parts)).await;
    }
    if !front.upstream.is_decided() {
        if Box::pin(contact::is_decided_now(front, by, &parts)).await {
            return Box::pin(other(front, parts)).await;
        }
        return Box::pin(contact::other(front, by, parts)).await;
    }
    if parts.method == Method::DELETE
        && let Some(answered) = leaving::answer(front, by, &parts)
    {
        return answered;
    }
    if !front.upstream.speaks_http() {
        return lines::answer(front, by, &parts);
    }
    if stream::is_read(&parts) {
        return Box::pin(stream::answer(front, by, parts)).await;
    }
    if parts.method == Method::DELETE {
        end(front, by, &parts);
    }
    pass::bare(front, parts).await
}
