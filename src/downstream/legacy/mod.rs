//! Legacy clients: what of their sessions raincheck reads, and what passes as it is.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response};

use super::body::Body;
use super::dialect::{Edit, Looked};
use super::intake::{Read, read};
use super::reply::Rpc;
use super::tasks::Shared;
use super::{Front, cancels, dialect, facade, held, pass, sent};

pub mod agreed;
pub(super) mod calls;
pub mod carried;
mod contact;
mod leaving;
mod lines;
pub mod pushes;
mod stream;
pub(super) mod words;

use crate::mcp::headers::SESSION_ID;
use crate::task::policy::{Plan, plan};
use pushes::SessionKey;
use words::Words;

/// A message, a stream or the end of a session, from the network.
pub(super) async fn answer(front: &Shared, parts: Parts, body: Incoming) -> Response<Body> {
    if parts.method != Method::POST {
        return other(front, parts).await;
    }
    match read(front, body).await {
        Read::Whole(body) => {
            let bytes = body.len();
            sent::asked_with(bytes, Box::pin(post(front, parts, body)).await)
        }
        Read::Refused(refusal) => refusal,
    }
}

/// A message, whose body was read.
pub(super) async fn post(front: &Shared, parts: Parts, body: Bytes) -> Response<Body> {
    if let Some(refusal) = front.refuses_message(&parts, &body) {
        return refusal;
    }
    let mut parts = agreed::completed(front, parts);
    let body = front.hide_our_ids(&mut parts, body).await;
    // What is learnt meanwhile came too late for the question that follows.
    let known = front.upstream.known_era();
    if facade::serves(front, &parts.headers).await {
        return Box::pin(facade::post(front, &parts, body)).await;
    }
    let edit = match dialect::look(front, &parts, &body).await {
        Looked::Answered(response) => return response,
        Looked::Pass(edit) => edit,
    };
    let words = Words::of(&body);
    if let Some(answered) = Box::pin(calls::post(front, &parts, &body, &words, edit.as_ref())).await
    {
        return answered;
    }
    if let Some(refusal) = only_as_task(front, &parts, &words) {
        return refusal;
    }
    if !front.upstream.is_decided() || contact::may_be_refused(front, known, &parts, &body) {
        drop(words);
        return Box::pin(contact::post(front, parts, body, edit)).await;
    }
    if front.upstream.speaks_http() {
        return match held_call(front, &parts, words) {
            Some(call) => held::post(front, parts, body, call).await,
            None => pass_on(front, parts, body, edit).await,
        };
    }
    lines::post(front, &parts, &body, edit).await
}

/// The refusal of a call whose tool runs as a task only, and which is none. The rule holds whatever
/// revision the session speaks: in those before 2025-11-25 nobody can ask for a task.
fn only_as_task(front: &Front, parts: &Parts, words: &Words<'_>) -> Option<Response<Body>> {
    let Words::Request(request) = words else {
        return None;
    };
    if request.method != "tools/call" || dialect::wishes(&parts.headers, &request.params) {
        return None;
    }
    let name = request.params.get_str("name")?;
    let rule = front.rules.for_tool(&name).0;
    (plan(rule, false, false) == Plan::Refuse).then(|| {
        let refused = Rpc::error(request.id.get(), &dialect::only_as_task());
        refused.on_session().into_response()
    })
}

async fn pass_on(front: &Shared, parts: Parts, body: Bytes, edit: Option<Edit>) -> Response<Body> {
    match edit {
        Some(edit) => Box::pin(dialect::relay(front, parts, body, edit)).await,
        None => pass::bytes(front, parts, body).await,
    }
}

/// The client ends its session: what of ours runs there ends at once, whatever the server says.
fn end(front: &Shared, parts: &Parts) {
    let caller = *front.callers.of(&parts.headers).as_bytes();
    if parts.headers.contains_key(SESSION_ID)
        && let Some(session) = front.upstream.client_session(&parts.headers, caller)
    {
        session.end();
    }
}

/// The call that a message for a server over HTTP is, if it can be held.
fn held_call(front: &Shared, parts: &Parts, words: Words<'_>) -> Option<held::Call> {
    match words {
        Words::Request(asked) => {
            held::Call::of(front, parts, asked.id, &asked.method, &asked.params)
        }
        Words::Notification(method, Some(params)) if method == "notifications/cancelled" => {
            if let Some(id) = params.get("requestId")
                && !held::cancelled(front, &parts.headers, id)
                && let Some(session) =
                    SessionKey::named(&front.callers.of(&parts.headers), &parts.headers)
            {
                cancels::pass_on(front, session, id);
            }
            None
        }
        Words::Notification(..) | Words::Answer(..) | Words::Other => None,
    }
}

/// The client reads streams of events.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(ACCEPT).iter();
    values.any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.contains("text/event-stream") || value.contains("*/*")
    })
}

/// GET and DELETE.
pub(super) async fn other(front: &Shared, parts: Parts) -> Response<Body> {
    let parts = agreed::completed(front, parts);
    if let Some(replayed) = held::resume(front, &parts).await {
        return replayed;
    }
    let listens = (parts.method == Method::GET).then(|| parts.headers.clone());
    let response = other_answer(front, parts).await;
    if let Some(headers) = listens.filter(|_| response.status().is_success()) {
        dialect::stream_opened(front, &headers);
    }
    response
}

async fn other_answer(front: &Shared, parts: Parts) -> Response<Body> {
    if facade::serves(front, &parts.headers).await {
        return Box::pin(facade::other(front, &parts)).await;
    }
    if !front.upstream.is_decided() {
        return Box::pin(contact::other(front, parts)).await;
    }
    if parts.method == Method::DELETE
        && let Some(answered) = leaving::answer(front, &parts)
    {
        return answered;
    }
    if !front.upstream.speaks_http() {
        return lines::answer(front, &parts);
    }
    if stream::is_read(&parts) {
        return Box::pin(stream::answer(front, parts)).await;
    }
    if parts.method == Method::DELETE {
        end(front, &parts);
    }
    pass::bare(front, parts).await
}
