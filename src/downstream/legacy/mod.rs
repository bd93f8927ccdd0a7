//! Legacy clients: what of their sessions raincheck reads, and what passes as it is.

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use crate::downstream::body::Body;
use crate::downstream::calls::cancel::cancel;
use crate::downstream::calls::registry::Cancelled;
use crate::downstream::calls::resumable;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::{Inbound, LegacyMessage};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::session::{SessionRoute, route_session};
use crate::downstream::outbound::response::{self, undecided};
use crate::downstream::proxy::Shared;
use crate::downstream::related::forget_length;
use crate::downstream::tasks::v2025;
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
use calls::DecidedCall;
use on_http::{held_call, pass_on};

/// A message, whose body was read.
pub(super) async fn post(
    front: &Shared,
    by: &Requester,
    parts: Parts,
    body: &Bytes,
    message: Inbound<'_>,
) -> Response<Body> {
    if let Err(error) = front.check_message(&parts.headers, &message) {
        return response::refusal(StatusCode::BAD_REQUEST, &error);
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
    let speaks_of_tasks = v2025::speaks(&parts.headers);
    let mut edit = None;
    match route_session(message, by, speaks_of_tasks) {
        SessionRoute::Pass => {}
        SessionRoute::Initialize(request) => {
            edit = Some(Box::new(AnswerEdit::of_initialize(front, by, request)));
        }
        SessionRoute::Tools(request) => {
            let editing = calls::edit_of_tools(front, by, request, speaks_of_tasks);
            edit = Box::pin(editing).await.map(Box::new);
        }
        SessionRoute::Call(request) => {
            let headers = &parts.headers;
            match Box::pin(calls::decide(front, by, headers, request)).await {
                Ok(DecidedCall::Pass) => {}
                Ok(DecidedCall::Answer(op, pin)) => {
                    let answering = calls::answer(front, by, headers, request, (op, pin));
                    return Box::pin(answering).await;
                }
                Err(error) => return undecided(request.id, error),
            }
        }
        SessionRoute::Task(request, op) => {
            let answered = v2025::answer(front, by, request, op).await;
            if !front.settings.pass_native_tasks || answered.is_known() {
                return answered.into_response();
            }
        }
        SessionRoute::Cancel(id) => {
            let cancelled = by.session.map(|session| cancel(front, session, id));
            if cancelled == Some(Cancelled::Carried) {
                return response::empty(StatusCode::ACCEPTED);
            }
        }
        SessionRoute::TaskAnswer(question, message) => {
            let taking = v2025::take_answer(front, by, &parts.headers, &question, message);
            return Box::pin(taking).await;
        }
        SessionRoute::Answer(id, message) => {
            if calls::take_answer(front, by, id, message) {
                return response::empty(StatusCode::ACCEPTED);
            }
        }
    }
    if !front.upstream.is_decided() || contact::may_be_refused(front, known, &parts, message) {
        return Box::pin(contact::post(front, by, parts, body, message, edit)).await;
    }
    if front.upstream.speaks_http() {
        return match held_call(front, by, &parts.headers, message) {
            Some(call) => resumable::post(front, by, parts, body.clone(), call).await,
            None => pass_on(front, parts, body.clone(), edit).await,
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
    if let Some(last) = resumable::last_event(&parts) {
        return Box::pin(resumable::resume(front, by, &parts, last)).await;
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
    if parts.method == Method::DELETE && leaving::begin(front, by, &parts) {
        return response::empty(StatusCode::OK);
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
