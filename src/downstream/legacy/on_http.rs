//! A message for a server that speaks Streamable HTTP: a call is held where it can be, all else passes.

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};

use crate::downstream::body::Body;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Shared;
use crate::downstream::{calls::resumable, pass};

pub(super) async fn pass_on(
    front: &Shared,
    parts: Parts,
    body: Bytes,
    edit: Option<Box<AnswerEdit>>,
) -> Response<Body> {
    match edit {
        Some(edit) => Box::pin(edit.pass(parts, body)).await,
        None => pass::bytes(front, parts, body).await,
    }
}

/// The call that a message for a server over HTTP is, if it can be held.
pub(super) fn held_call(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
    message: &LegacyMessage<'_>,
) -> Option<resumable::ResumableCall> {
    if let LegacyMessage::Request(asked) = message {
        return resumable::ResumableCall::of(
            front,
            by,
            headers,
            asked.id,
            &asked.method,
            &asked.params,
        );
    }
    None
}
