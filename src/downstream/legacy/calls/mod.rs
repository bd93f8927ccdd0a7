//! What of a legacy session raincheck carries itself, because what passes can neither become a ticket
//! nor be anything else than one call: calls where there are companion tools, and calls of tools that
//! the server runs only as tasks. With companion tools, lists of tools have ours in them.
//!
//! All else passes.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::value::RawValue;

use crate::downstream::body::Body;
use crate::downstream::calls::registry::AnswerPath;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response;
use crate::downstream::proxy::Shared;
use crate::downstream::tasks::v2025::{self, Edit};
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::runner::responder::RelayedAnswer;
use crate::upstream::Answer;

mod call;
mod list;

pub(in crate::downstream) use call::{Carry, answer, carry};
use list::Page;

/// The server's list of tools with ours in it. `None`: it passes.
pub(super) async fn tools(
    front: &Shared,
    by: &Requester,
    (parts, body): (&Parts, &Bytes),
    request: &Request<'_>,
    edit: Option<&Edit>,
) -> Option<Response<Body>> {
    let companion = front.companion.as_ref().filter(|_| request.has_id())?;
    let has_ours = is_decided(front, by).await;
    companion.note_list(by.name(), has_ours);
    if !has_ours {
        return None;
    }
    let page = Page::of(front, by, request, edit.cloned());
    if front.upstream.speaks_http() {
        return Some(list::over_http(page, parts, body).await);
    }
    list::over_lines(page, parts, body, request).await
}

/// Takes the answer to a question of a task, or of a call that is carried here. `None`: it is for the server.
pub(super) async fn answered(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
    (id, message): (&RawValue, &Object<'_>),
) -> Option<Response<Body>> {
    if let Some(taken) = v2025::answered(front, by, headers, id, message).await {
        return Some(taken);
    }
    let answer = match (message.get("result"), message.get("error")) {
        (Some(result), None) => Answer::Result(result.get().into()),
        (None, Some(error)) => Answer::Refused(error.get().into()),
        _ => return None,
    };
    let session = by.session?;
    if let Some((id, AnswerPath::Carrier(answers))) = front.calls.take_question(session, id) {
        // There is room for the answers to all questions that may be asked. An answer that comes too late is lost.
        let id = Arc::from(id);
        let _ = answers.try_send(RelayedAnswer { id, answer });
        return Some(response::empty(StatusCode::ACCEPTED));
    }
    passes(front, session, id);
    None
}

/// Whether it is decided how the server is spoken to, and so whether its list can be read. It is asked
/// where nobody did so before: a client lists the tools once.
async fn is_decided(front: &Shared, by: &Requester) -> bool {
    let upstream = &front.upstream;
    if !upstream.is_decided() {
        upstream.era_soon(by.credentials.clone()).await;
    }
    upstream.is_decided()
}

/// Nobody asked that here: another replica may carry the call that did. The client does not wait until
/// that one is told.
fn passes(front: &Shared, session: SessionKey, question: &RawValue) {
    let may_be_anothers = front.companion.is_some() && front.upstream.speaks_http();
    if !may_be_anothers || front.runner.is_alone() {
        return;
    }
    let (telling, question) = (Arc::clone(front), question.to_owned());
    front.passing.spawn(async move {
        let runner = &telling.runner;
        let told = runner.tell_passed(session.as_bytes(), question.get());
        if let Err(error) = told.await {
            tracing::warn!(%error, "a call may ask again what its client has answered on another replica");
        }
    });
}
