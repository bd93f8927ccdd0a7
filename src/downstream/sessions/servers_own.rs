//! Messages on sessions of a server that speaks Streamable HTTP: calls are made resumable, and everything else
//! passes.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use hyper::http::request::Parts;

use crate::downstream::body::Body;
use crate::downstream::calls::resumable::{ConnectedCall, Waiting};
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

/// Sends a message to the server, in the way that suits how its client waits.
pub(super) async fn over_http(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: Box<Parts>,
    body: &Bytes,
    message: &LegacyMessage<'_>,
    edit: Option<Box<AnswerEdit>>,
) -> Response<Body> {
    // Only requests have an answer that a cut connection could lose. Everything else passes.
    let Some(asked) = message.request() else {
        return pass_on(proxy, parts, body.clone(), edit).await;
    };
    match Waiting::of(by, &parts.headers, asked) {
        Waiting::Resumable(call) => resumable::post(proxy, by, *parts, body.clone(), *call).await,
        Waiting::Connected(Some(heartbeat)) => {
            let sent = (*parts, body.clone());
            let call = ConnectedCall {
                id: asked.id,
                tool: &asked.params.get_str("name").unwrap_or_default(),
                heartbeat,
            };
            Box::pin(resumable::post_connected(proxy, by, sent, call)).await
        }
        Waiting::Connected(None) => pass_on(proxy, parts, body.clone(), edit).await,
    }
}
