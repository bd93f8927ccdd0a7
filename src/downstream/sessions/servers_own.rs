//! Messages on sessions of a server that speaks Streamable HTTP: calls are made resumable, and everything else
//! passes.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use crate::downstream::body::Body;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::{calls::resumable, passthrough};

pub(super) async fn pass_on(
    proxy: &Arc<Proxy>,
    parts: Box<Parts>,
    body: Bytes,
    edit: Option<Box<AnswerEdit>>,
) -> Response<Body> {
    match edit {
        Some(edit) => Box::pin(edit.pass(*parts, body)).await,
        None => passthrough::bytes(proxy, parts, body).await,
    }
}

/// How the client of a message waits for its answer. `None`: the message is no request.
pub(super) fn waiting(
    by: &Requester,
    headers: &HeaderMap,
    message: &LegacyMessage<'_>,
) -> Option<(Box<RawValue>, resumable::Waiting)> {
    let LegacyMessage::Request(asked) = message else {
        return None;
    };
    let waiting = resumable::Waiting::of(by, headers, asked.id, &asked.method, &asked.params);
    Some((asked.id.to_owned(), waiting))
}

/// The message as a resumable call, if it can be one.
pub(super) fn held_call(
    by: &Requester,
    headers: &HeaderMap,
    message: &LegacyMessage<'_>,
) -> Option<resumable::ResumableCall> {
    if let LegacyMessage::Request(asked) = message {
        return resumable::ResumableCall::of(by, headers, asked.id, &asked.method, &asked.params);
    }
    None
}
