//! The two results of the server in which tasks are advertised: `initialize` and `tools/list`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::Full;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::native::NativeTools;
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::pass;
use crate::downstream::proxy::Shared;
use crate::mcp::json::{Object, set};
use crate::mcp::request::Request;
use crate::mcp::sse;
use crate::mcp::tasks_2025::{Support, with_capabilities, with_support};
use crate::task::id::Caller;
use crate::task::policy::{Mode, Rule, Rules};
use crate::upstream::http::RequestBody;
use crate::upstream::relay::{Answering, RawMessage, Relayed};

const CAPABILITIES: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// Whoever cannot be told from others gets no list (2025-11-25, Tasks, Task Isolation).
const CAPABILITIES_OF_NOBODY: &str = r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// How the answer to one request is edited.
#[derive(Debug, Clone)]
pub(in crate::downstream) struct Edit {
    id: Box<RawValue>,
    what: What,
    /// The server's own tasks are the client's business.
    keep_own: bool,
}

#[derive(Debug, Clone)]
enum What {
    Initialize(&'static str),
    Tools(Arc<Rules>, Arc<NativeTools>),
}

impl Edit {
    /// `None`: the answer to this request stays as it is.
    pub(in crate::downstream) fn of(
        front: &Shared,
        by: &Requester,
        request: &Request<'_>,
    ) -> Option<Self> {
        let what = match &*request.method {
            "initialize" if by.has_credentials => What::Initialize(CAPABILITIES),
            "initialize" => What::Initialize(CAPABILITIES_OF_NOBODY),
            "tools/list" => What::Tools(Arc::clone(&front.rules), Arc::clone(&front.native_tools)),
            _ => return None,
        };
        Some(Self {
            id: request.id.to_owned(),
            what,
            keep_own: front.settings.pass_native_tasks,
        })
    }

    /// A message of the server. Only the result of the request is changed.
    pub(in crate::downstream) fn apply(&self, message: String) -> String {
        self.edited(&message).unwrap_or(message)
    }

    fn is_of_initialize(&self) -> bool {
        matches!(self.what, What::Initialize(_))
    }

    fn edited(&self, message: &str) -> Option<String> {
        let object = Object::parse(message).ok()?;
        let is_answer = object.get("id")?.get() == self.id.get();
        let result = object.get("result").filter(|_| is_answer)?.get();
        let edited = self.result(result)?;
        set(message, "result", &edited).ok()
    }

    /// The result by itself; `None`: it stays as it is.
    fn result(&self, result: &str) -> Option<String> {
        match &self.what {
            What::Initialize(tasks) => with_capabilities(result, tasks, self.keep_own).ok()?,
            What::Tools(rules, native_tools) => with_support(result, |name, own| {
                native_tools.note(name, own == Some("required"));
                support(rules.for_tool(name).0, own, self.keep_own)
            })
            .ok(),
        }
    }
}

/// What a tool says of tasks, where the server says `own`.
fn support(rule: &Rule, own: Option<&str>, keep_own: bool) -> Support {
    match (rule.mode, own) {
        (_, Some("optional" | "required")) if keep_own => Support::Untouched,
        // Without a task it cannot be called at all.
        (Mode::Never, Some("required")) => Support::Untouched,
        (Mode::Never, _) => Support::Unsaid,
        (Mode::Always | Mode::Auto, _) if rule.require_tasks => Support::Required,
        (Mode::Always | Mode::Auto, _) => Support::Optional,
    }
}

/// Passes a request on and edits what it is answered with.
pub(in crate::downstream) async fn relay(
    front: &Shared,
    by: &Requester,
    parts: Parts,
    body: Bytes,
    edit: Edit,
) -> Response<Body> {
    let answer = front.passing.token();
    let bytes_max = usize::try_from(front.rules.result_bytes_max()).unwrap_or(usize::MAX);
    let body = RequestBody::Ready(Full::new(body));
    let mut answering = match front.upstream.relay(parts, body, bytes_max).await {
        Ok(Relayed::Answer(answering)) => answering,
        Ok(Relayed::Passed(response)) => {
            return response.map(|body| Body::Passed {
                begun: None,
                body,
                _answer: Some(answer),
            });
        }
        Err(failure) => return pass::unreachable_upstream(failure),
    };
    let mut head = answering.head.clone();
    head.headers.remove(CONTENT_LENGTH);
    if answering.is_stream() {
        let reading = Reading {
            front: Arc::clone(front),
            caller: by.caller,
            head: head.headers.clone(),
            answering,
            edit,
            _answer: answer,
        };
        let events = stream::unfold(reading, |mut reading| async {
            let event = reading.next_event().await?;
            Some((event, reading))
        });
        return Response::from_parts(head, Body::Events(events.boxed()));
    }
    match answering.next().await {
        Ok(Some(said)) => {
            if edit.is_of_initialize() {
                front.agreed.note(&by.caller, &head.headers, &said.text);
            }
            Response::from_parts(head, Body::ready(edit.apply(said.text)))
        }
        Ok(None) => Response::from_parts(head, Body::Empty),
        Err(failure) => pass::unreachable_upstream(failure),
    }
}

/// An answer that comes as events.
struct Reading {
    front: Shared,
    caller: Caller,
    head: HeaderMap,
    answering: Box<Answering>,
    edit: Edit,
    _answer: TaskTrackerToken,
}

impl Reading {
    async fn next_event(&mut self) -> Option<Bytes> {
        let RawMessage { text, event_id } = self.answering.next().await.ok()??;
        if self.edit.is_of_initialize() {
            self.front.agreed.note(&self.caller, &self.head, &text);
        }
        let message = if text.is_empty() {
            Bytes::from_static(b"data: \n\n")
        } else {
            sse::event(&self.edit.apply(text))
        };
        Some(match event_id {
            Some(id) => [format!("id: {id}\n").as_bytes(), &message].concat().into(),
            None => message,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_says_follows_the_policy() {
        let rule = |mode, require_tasks| Rule {
            mode,
            require_tasks,
            ..Rule::default()
        };
        for (mode, require_tasks, own, keep_own, says) in [
            (Mode::Auto, false, None, false, Support::Optional),
            (
                Mode::Always,
                false,
                Some("forbidden"),
                false,
                Support::Optional,
            ),
            (
                Mode::Always,
                false,
                Some("required"),
                false,
                Support::Optional,
            ),
            (Mode::Always, true, None, false, Support::Required),
            (Mode::Never, false, Some("optional"), false, Support::Unsaid),
            (
                Mode::Never,
                false,
                Some("required"),
                false,
                Support::Untouched,
            ),
            (
                Mode::Always,
                false,
                Some("optional"),
                true,
                Support::Untouched,
            ),
            (
                Mode::Always,
                false,
                Some("forbidden"),
                true,
                Support::Optional,
            ),
        ] {
            let found = support(&rule(mode, require_tasks), own, keep_own);
            assert_eq!(found, says, "{mode:?} {require_tasks} {own:?} {keep_own}");
        }
    }
}
