//! Passing a request on and editing its answer: `initialize` declares that there are tasks, and `tools/list` declares
//! which tools run as tasks and how large their results may be, and has our tools in it. So are the lists of modern
//! clients that do not pass as the server gives them.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::body::Body;
use super::events::list::{delivery, ours_alone, with_ours};
use super::inbound::requester::Requester;
use super::inbound::route::modern::Listed;
use super::modern_call::{self, ModernCall};
use super::outbound::response::Rpc;
use super::proxy::Proxy;
use super::tasks::v2025::Advertised;
use super::{companion, discover, passthrough};
use crate::base::unfold::Unfold;
use crate::mcp::answer::{is_any_message, is_same_id};
use crate::mcp::error::{Failure, Reason, SideEffect, code};
use crate::mcp::json::{Object, raw, set};
use crate::mcp::request::Request;
use crate::mcp::{result, sse};
use crate::runner::responder::{CallAnswer, Reply};
use crate::upstream::http::RequestBody;
use crate::upstream::relay::{Answering, RawMessage, Relayed};

/// The edits to the answer to one request.
#[derive(Clone)]
pub(super) struct AnswerEdit {
    proxy: Arc<Proxy>,
    by: Requester,
    /// The id of the request.
    id: Box<RawValue>,
    /// The tasks capability that the answer declares.
    tasks: Option<Advertised>,
    /// `None`: the answer is that to `initialize`.
    tools: Option<ToolsPage>,
}

/// A page of the list of tools, which declares how large their results may be.
#[derive(Clone)]
struct ToolsPage {
    /// Our tools are in the list. The kinds of requests that the client can be sent, as JSON.
    ours: Option<Arc<str>>,
    /// The page may be the only one.
    is_first: bool,
}

impl AnswerEdit {
    pub(super) fn of_initialize(proxy: &Arc<Proxy>, by: &Requester, request: &Request<'_>) -> Self {
        let tasks = Some(Advertised::in_capabilities(proxy, by));
        Self::of(proxy, by, request, tasks, None)
    }

    /// The edit of a list of tools. `says_tasks`: the client speaks 2025-11-25. `ours`: what a client that gets our
    /// tools can be asked. `None`: the list stays as it is.
    pub(super) fn of_tools(
        proxy: &Arc<Proxy>,
        by: &Requester,
        request: &Request<'_>,
        says_tasks: bool,
        ours: Option<&str>,
    ) -> Option<Self> {
        if !says_tasks && ours.is_none() && !by.rules.edits_list() {
            return None;
        }
        let tasks = says_tasks.then(|| Advertised::in_tools(proxy, by));
        let page = ToolsPage {
            ours: ours.map(Arc::from),
            is_first: !request.params.contains("cursor"),
        };
        Some(Self::of(proxy, by, request, tasks, Some(page)))
    }

    fn of(
        proxy: &Arc<Proxy>,
        by: &Requester,
        request: &Request<'_>,
        tasks: Option<Advertised>,
        tools: Option<ToolsPage>,
    ) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            by: by.clone(),
            id: request.id.to_owned(),
            tasks,
            tools,
        }
    }

    /// Edits a message of the server. Only the result of the request is changed.
    pub(super) async fn apply(&self, message: String) -> String {
        let Some(result) = self.result_in(&message) else {
            return message;
        };
        let result = self.edit(result).await;
        set(&message, "result", result.get()).unwrap_or(message)
    }

    async fn edit(&self, result: Box<RawValue>) -> Box<RawValue> {
        let edited = self.tasks.as_ref().and_then(|tasks| tasks.edit(&result));
        let result = edited.and_then(|text| raw(text).ok()).unwrap_or(result);
        let Some(page) = &self.tools else {
            return result;
        };
        let (proxy, by) = (&self.proxy, &self.by);
        let result = companion::by_rules(&by.rules, result);
        match &page.ours {
            Some(ours) => companion::with_ours(proxy, by, ours, result, page.is_first).await,
            None => result,
        }
    }

    /// `None`: the message is not the answer to the request, or is an error.
    fn result_in(&self, message: &str) -> Option<Box<RawValue>> {
        let message = Object::parse(message).ok()?;
        let id = message.get("id")?;
        let is_answer = is_same_id(id.get(), self.id.get());
        let result = message.get("result").filter(|_| is_answer)?;
        Some(result.to_owned())
    }

    /// Remembers the version that a session agreed on, and its client.
    async fn note(&self, head: &HeaderMap, message: &str) {
        // An error rides on HTTP 200, too, and agrees on nothing.
        if self.tools.is_none() && self.result_in(message).is_some() {
            let (proxy, by) = (&self.proxy, &self.by);
            proxy.agreed.note(&by.caller, head, message);
            proxy.session_clients.note(by, head).await;
            proxy.session_owners.note(by, head).await;
        }
    }

    /// The answer in place of one that broke off.
    pub(super) fn failed(&self, failure: Failure) -> Rpc {
        Rpc::failure(self.id.get(), failure)
    }

    /// Passes the request on over HTTP.
    pub(super) async fn pass(self, parts: Parts, body: Bytes) -> Response<Body> {
        // Taken before the request is sent: a drain that begins meanwhile waits for the answer.
        let token = self.proxy.passing.token();
        let bytes_max = self.by.rules.result_bytes_max();
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let body = RequestBody::Ready(body);
        let mut answering = match self.proxy.upstream.relay(parts, body, bytes_max).await {
            Ok(Relayed::Answer(answering)) => answering,
            Ok(Relayed::Passed(response)) => return passthrough::response(response, Some(token)),
            Err(failure) => return passthrough::unreachable_upstream(&failure, Some(&self.id)),
        };
        let mut head = answering.head.clone();
        // The edit changes the length of the body.
        head.headers.remove(CONTENT_LENGTH);
        if answering.is_stream() {
            let stream = EditedStream {
                edit: self,
                head: head.headers.clone(),
                answering,
                _answer: token,
            };
            return Response::from_parts(head, Body::events(stream.into_stream()));
        }
        match answering.next().await {
            Ok(Some(said)) => {
                // Stored before the client has the answer: its next request may come at once, and without the version.
                self.note(&head.headers, &said.text).await;
                Response::from_parts(head, Body::ready(self.apply(said.text).await))
            }
            Ok(None) => {
                // The request was sent, so the server may have acted on it before it ended its answer.
                let failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
                self.failed(failure).into_response()
            }
            Err(failure) => self.failed(failure).into_response(),
        }
    }
}

/// An answer that comes as events.
struct EditedStream {
    edit: AnswerEdit,
    head: HeaderMap,
    answering: Box<Answering>,
    /// A drain waits for the answer.
    _answer: TaskTrackerToken,
}

impl Unfold for EditedStream {
    type Item = Bytes;

    /// `None` at the end. A stream that broke ends, as it would without raincheck.
    async fn next(&mut self) -> Option<Bytes> {
        let RawMessage {
            text,
            event_id,
            is_named,
            other,
        } = self.answering.next().await.ok()??;
        // An event of another name is no message: read as one, it makes an official client fail the call.
        if let Some(mut other) = other {
            other.id = event_id;
            return Some(sse::encode(&other));
        }
        if !text.is_empty() && !is_any_message(&text) {
            return Some(sse::unread(text, is_named, event_id));
        }
        self.edit.note(&self.head, &text).await;
        // An event without data carries the id by which the client comes back, so it must reach the client.
        let event = if text.is_empty() {
            Bytes::from_static(b"data: \n\n")
        } else {
            sse::event(&self.edit.apply(text).await)
        };
        Some(match event_id {
            Some(id) => [format!("id: {id}\n").as_bytes(), &event].concat().into(),
            None => event,
        })
    }
}

/// Answers a modern client with a list that does not pass as the server gives it. Messages before the answer are dropped.
pub(super) async fn list(
    proxy: &Arc<Proxy>,
    asked: &ModernCall<'_>,
    how: Listed,
) -> Response<Body> {
    let id = asked.modern.request.id.get();
    let mut client = match modern_call::begin(proxy, asked) {
        Ok(client) => client,
        Err(refused) => return Rpc::not_begun(id, refused.failure()).into_response(),
    };
    let answer = loop {
        match client.next().await {
            Some(Reply::Relay(_)) => {}
            Some(Reply::Answer(answer)) => break answer,
            None => return Rpc::abandoned(id).into_response(),
        }
    };
    let answer = match answer {
        CallAnswer::Result(page) => match raw(page.into()) {
            Ok(page) => CallAnswer::result(edited_list(proxy, asked, how, page).await),
            Err(_) => CallAnswer::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None)),
        },
        CallAnswer::Error(error)
            if result::error_code(&error.error) == Some(code::METHOD_NOT_FOUND) =>
        {
            let list = list_in_place(proxy, asked, how);
            list.map_or(CallAnswer::Error(error), CallAnswer::result)
        }
        CallAnswer::Error(_) | CallAnswer::Failed(_) | CallAnswer::StoreUnavailable(_) => answer,
    };
    Rpc::answer(id, answer).guarded(Some(client.into_guard()))
}

async fn edited_list(
    proxy: &Arc<Proxy>,
    asked: &ModernCall<'_>,
    how: Listed,
    page: Box<RawValue>,
) -> Box<RawValue> {
    let (request, by) = (&asked.modern.request, asked.by);
    if how == Listed::WithEvents {
        return with_ours(&page, delivery(proxy, by)).unwrap_or(page);
    }
    let capabilities = asked.modern.meta.capabilities.get();
    let ours = (how == Listed::WithOurs).then_some(capabilities);
    let is_tools = request.method == "tools/list";
    let edit = is_tools.then(|| AnswerEdit::of_tools(proxy, by, request, false, ours));
    match edit.flatten() {
        Some(edit) => edit.edit(page).await,
        None => page,
    }
}

/// Returns the list in place of the error that the server lacks it. `None`: the error passes.
fn list_in_place(proxy: &Proxy, asked: &ModernCall<'_>, how: Listed) -> Option<Box<RawValue>> {
    match how {
        // The stand-in promised this feature to the client, so its absence must not be an error.
        Listed::MaybeEmpty => discover::empty(&asked.modern.request.method),
        // The server has no events, which must not hide raincheck's own.
        Listed::WithEvents => raw(ours_alone(delivery(proxy, asked.by))).ok(),
        Listed::WithOurs | Listed::ByRules => None,
    }
}
