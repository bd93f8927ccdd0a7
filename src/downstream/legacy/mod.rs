//! Legacy clients: what of their sessions raincheck reads, and what passes as it is.

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use crate::downstream::body::Body;
use crate::downstream::calls::cancel::cancel;
use crate::downstream::calls::registry::Cancelled;
use crate::downstream::calls::resumable;
use crate::downstream::inbound::request::{Inbound, LegacyMessage};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::session::{SessionRoute, route_session};
use crate::downstream::outbound::response;
use crate::downstream::proxy::Shared;
use crate::downstream::related::forget_length;
use crate::downstream::tasks::v2025;
use crate::downstream::tasks::v2025::Edit;
use crate::downstream::{facade, pass};

pub mod agreed;
pub(super) mod calls;
mod contact;
mod leaving;
mod lines;
mod on_http;
pub mod pushes;
mod stream;

use crate::mcp::headers::SESSION_ID;
use crate::mcp::version::Era;
use on_http::{held_call, pass_on};

/// A message, whose body was read.
pub(super) async fn post(
    front: &Shared,
    by: &Requester,
    parts: Parts,
    body: &Bytes,
    message: Inbound<'_>,
) -> Response<Body> {
    if let Some(refusal) = front.refuses_message(&parts.headers, &message) {
        return refusal;
    }
    let mut parts = front.agreed.completed(by, parts);
    let message = message.legacy();
    if let Some(edited) = front.hide_our_ids(body, &message).await {
        forget_length(&mut parts.headers);
        let message = Inbound::read(&edited).legacy();
        return Box::pin(on_session(front, by, parts, &edited, &message)).await;
    }
    on_session(front, by, parts, body, &message).await
}

async fn on_session(
    front: &Shared,
    by: &Requester,
    mut parts: Parts,
    body: &Bytes,
    message: &LegacyMessage<'_>,
) -> Response<Body> {
    // What is learnt meanwhile came too late for the question that follows.
    let known = front.upstream.known_era();
    if facade::serves(front, by, &parts.headers).await {
        return Box::pin(facade::post(front, by, &parts, body, message)).await;
    }
    v2025::complete_version(&mut parts, message);
    let headers = &parts.headers;
    let speaks_of_tasks = v2025::speaks(headers);
    let (answered, edit) = match route_session(message, by, speaks_of_tasks) {
        SessionRoute::Initialize(request) => (None, Edit::of(front, by, request)),
        SessionRoute::Tools(request) => {
            let edit = speaks_of_tasks.then(|| Edit::of(front, by, request));
            let edit = edit.flatten();
            let listing = calls::tools(front, by, (&parts, body), request, edit.as_ref());
            (Box::pin(listing).await, edit)
        }
        SessionRoute::Call(request) => (
            Box::pin(calls::answer(front, by, headers, request)).await,
            None,
        ),
        SessionRoute::Task(request) => (v2025::answer(front, by, request).await, None),
        SessionRoute::Cancel(id) => {
            let cancelled = by.session.map(|session| cancel(front, session, id));
            let is_ours = cancelled == Some(Cancelled::Carried);
            (is_ours.then(|| response::empty(StatusCode::ACCEPTED)), None)
        }
        SessionRoute::Answer(id, message) => {
            let answering = calls::answered(front, by, headers, (id, message));
            (Box::pin(answering).await, None)
        }
        SessionRoute::Pass => (None, None),
    };
    if let Some(answered) = answered {
        return answered;
    }
    if !front.upstream.is_decided() || contact::may_be_refused(front, known, &parts, message) {
        return Box::pin(contact::post(front, by, parts, body, message, edit)).await;
    }
    if front.upstream.speaks_http() {
        return match held_call(front, by, &parts.headers, message) {
            Some(call) => resumable::post(front, by, parts, body.clone(), call).await,
            None => pass_on(front, by, parts, body.clone(), edit).await,
        };
    }
    lines::post(front, by, &parts, body, message, edit).await
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
