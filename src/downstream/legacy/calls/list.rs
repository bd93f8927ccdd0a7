//! A legacy client's list of tools, with ours behind the last of the server's.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::Full;
use hyper::Response;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use serde_json::value::RawValue;

use super::super::super::body::Body;
use super::super::super::inbound::requester::Requester;
use super::super::super::outbound::keepalive::comments;
use super::super::super::outbound::response::Rpc;
use super::super::super::proxy::Shared;
use super::super::super::tasks::v2025::Edit;
use super::super::super::{companion, pass};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::{Object, set, string};
use crate::mcp::request::Request;
use crate::mcp::sse;
use crate::upstream::http::RequestBody;
use crate::upstream::line::session::{ClientRequest, SessionEvent};
use crate::upstream::relay::{self, Relayed};

/// A list that was asked for.
pub(super) struct Page {
    front: Shared,
    by: Requester,
    id: Box<RawValue>,
    /// It may be all there is.
    is_first: bool,
    /// What else is said of the tools.
    edit: Option<Edit>,
}

impl Page {
    pub(super) fn of(
        front: &Shared,
        by: &Requester,
        request: &Request<'_>,
        edit: Option<Edit>,
    ) -> Self {
        Self {
            front: Arc::clone(front),
            by: by.clone(),
            id: request.id.to_owned(),
            is_first: !request.params.contains("cursor"),
            edit,
        }
    }

    /// The message with our tools in it, where it is the answer and the list ends with it.
    async fn edited(&self, text: String) -> String {
        let text = match &self.edit {
            Some(edit) => edit.apply(text),
            None => text,
        };
        let result = || {
            let message = Object::parse(&text).ok()?;
            let id = message.get("id")?;
            // A string may be written in many ways.
            let is_answer = id.get() == self.id.get() || string(id)? == string(&self.id)?;
            message.get("result").filter(|_| is_answer)
        };
        let Some(result) = result() else {
            return text;
        };
        let (by, capabilities) = (&self.by, self.by.session_capabilities());
        let result = result.to_owned();
        let page = companion::with_ours(&self.front, by, capabilities, result, self.is_first).await;
        set(&text, "result", page.get()).unwrap_or(text)
    }

    async fn event(&self, said: relay::RawMessage) -> Bytes {
        let event = sse::event(&self.edited(said.text).await);
        match said.event_id {
            Some(id) => [format!("id: {id}\n").as_bytes(), &event].concat().into(),
            None => event,
        }
    }
}

pub(super) async fn over_http(page: Page, parts: &Parts, body: &Bytes) -> Response<Body> {
    let token = page.front.passing.token();
    let bytes_max = usize::try_from(page.front.rules.result_bytes_max()).unwrap_or(usize::MAX);
    let body = RequestBody::Ready(Full::new(body.clone()));
    let relayed = page.front.upstream.relay(parts.clone(), body, bytes_max);
    let mut answering = match relayed.await {
        Ok(Relayed::Answer(answering)) => answering,
        Ok(Relayed::Passed(response)) => {
            return response.map(|body| Body::Passed {
                begun: None,
                body,
                _answer: Some(token),
            });
        }
        Err(failure) => return pass::unreachable_upstream(failure),
    };
    let mut head = answering.head.clone();
    head.headers.remove(CONTENT_LENGTH);
    if answering.is_stream() {
        let events = stream::unfold(
            (page, answering, comments(), token),
            |(page, mut answering, mut beat, token)| async {
                // A stream that broke ends, as it would have without us.
                let event = tokio::select! {
                    said = answering.next() => page.event(said.ok()??).await,
                    _ = beat.tick() => sse::COMMENT,
                };
                Some((event, (page, answering, beat, token)))
            },
        );
        return Response::from_parts(head, Body::Events(events.boxed()));
    }
    match answering.next().await {
        Ok(Some(said)) => Response::from_parts(head, Body::ready(page.edited(said.text).await)),
        Ok(None) => {
            let failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
            Rpc::failure(page.id.get(), failure).into_response()
        }
        Err(failure) => Rpc::failure(page.id.get(), failure).into_response(),
    }
}

/// `None`: the session does not take it, and says why to whoever passes it on.
pub(super) async fn over_lines(
    page: Page,
    parts: &Parts,
    body: &Bytes,
    request: &Request<'_>,
) -> Option<Response<Body>> {
    let id = parts.headers.get(SESSION_ID)?.to_str().ok()?;
    let caller = *page.by.caller.as_bytes();
    let session = page.front.upstream.session(id, caller)?;
    let _answer = page.front.passing.token();
    let asked = ClientRequest {
        id: request.id,
        method: &request.method,
        params: Some(request.params.clone()),
        text: std::str::from_utf8(body).ok()?,
        // Only the answer is of interest, and it comes as one piece.
        streams: false,
    };
    let mut said = session.ask(&asked).await.ok()?;
    while let Some(said) = said.recv().await {
        if let SessionEvent::Answer(text) = said {
            return Some(Rpc::passed(page.edited(text).await).into_response());
        }
    }
    let failure = Failure::new(Reason::UpstreamReset, SideEffect::Unknown);
    Some(Rpc::failure(page.id.get(), failure).into_response())
}
