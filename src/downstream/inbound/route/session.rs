//! The route of a message on a session of the server's own: decided once from the message's content and from the
//! revision that the session speaks. Pure.

use serde_json::value::RawValue;

use super::{TaskOp, names_our_result};
use crate::downstream::inbound::request::{CancelMessage, LegacyMessage};
use crate::downstream::inbound::requester::Requester;
use crate::mcp::json::{Object, string};
use crate::mcp::request::Request;
use crate::task::id::TaskId;
use crate::task::view_2025;

/// The way raincheck handles a message.
#[derive(Debug)]
pub(in crate::downstream) enum SessionRoute<'m, 'a> {
    /// `initialize` passes, and the answer declares that there are tasks.
    Initialize(&'m Request<'a>),
    /// `tools/list` passes; the answer may declare which tools run as tasks, and have our tools in it.
    Tools(&'m Request<'a>),
    /// `tools/call`: [`decide`](super::call::decide) decides.
    Call(&'m Request<'a>),
    /// A request about a task, which may be in the store.
    Task(&'m Request<'a>, TaskOp),
    /// `resources/read` of a result that raincheck keeps.
    Result(&'m Request<'a>),
    /// The client no longer waits for the request with this id.
    Cancel(CancelMessage<'a>),
    /// The answer to a question of a task.
    TaskAnswer(TaskQuestion, &'m Object<'a>),
    /// The answer to a question with this id, which a call may have asked that raincheck carries.
    Answer(&'a RawValue, &'m Object<'a>),
    /// The server answers.
    Pass,
}

/// A question of a task, as its id names it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::downstream) struct TaskQuestion {
    /// The id of the question on the wire.
    pub(in crate::downstream) id: Box<str>,
    pub(in crate::downstream) task: TaskId,
    /// The input key.
    pub(in crate::downstream) key: Box<str>,
}

impl TaskQuestion {
    /// `None`: no question of a task has this id.
    pub(in crate::downstream) fn of(id: &RawValue) -> Option<Self> {
        let id = string(id)?;
        let (task, key) = view_2025::question_of(&id)?;
        Some(Self {
            id: (&*id).into(),
            task,
            key: key.into(),
        })
    }
}

/// `speaks_of_tasks`: the session does, as revision 2025-11-25.
pub(in crate::downstream) fn route_session<'m, 'a>(
    message: &'m LegacyMessage<'a>,
    by: &Requester,
    speaks_of_tasks: bool,
) -> SessionRoute<'m, 'a> {
    match message {
        LegacyMessage::Request(request) => match &*request.method {
            // What a session agrees on is decided by its first answer.
            "initialize" if speaks_of_tasks || by.session.is_none() => {
                SessionRoute::Initialize(request)
            }
            "tools/list" => SessionRoute::Tools(request),
            "tools/call" => SessionRoute::Call(request),
            "resources/read" if names_our_result(request) => SessionRoute::Result(request),
            method => match TaskOp::of(method).filter(|_| speaks_of_tasks) {
                Some(op) => SessionRoute::Task(request, op),
                None => SessionRoute::Pass,
            },
        },
        LegacyMessage::Notification(..) => message
            .cancels()
            .map_or(SessionRoute::Pass, SessionRoute::Cancel),
        // The id itself names the task and the question, so any replica can take the answer.
        LegacyMessage::Answer(id, message) => match TaskQuestion::of(id) {
            Some(question) => SessionRoute::TaskAnswer(question, message),
            None => SessionRoute::Answer(id, message),
        },
        LegacyMessage::Unclear(_) => SessionRoute::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::callers::Callers;
    use crate::downstream::inbound::request::Inbound;
    use crate::mcp::version::Era;

    fn decided(text: &str, has_session: bool, speaks_of_tasks: bool) -> String {
        let message = Inbound::read(text.as_bytes()).legacy();
        let mut head = hyper::Request::builder();
        if has_session {
            head = head.header("mcp-session-id", "s");
        }
        let (parts, ()) = head.body(()).unwrap().into_parts();
        let by = Requester::of(
            &Callers::new(&[1; 32]),
            &parts,
            Era::Legacy,
            None,
            None,
            std::sync::Arc::default(),
        );
        match route_session(&message, &by, speaks_of_tasks) {
            SessionRoute::Initialize(_) => "initialize".into(),
            SessionRoute::Tools(_) => "tools".into(),
            SessionRoute::Call(_) => "call".into(),
            SessionRoute::Task(_, op) => format!("task {op:?}"),
            SessionRoute::Result(_) => "result".into(),
            SessionRoute::Cancel(_) => "cancel".into(),
            SessionRoute::TaskAnswer(question, _) => format!("answer {}", question.key),
            SessionRoute::Answer(..) => "answer".into(),
            SessionRoute::Pass => "pass".into(),
        }
    }

    #[test]
    fn only_what_raincheck_has_to_do_with_is_read() {
        let initialize = r#"{"id":1,"method":"initialize"}"#;
        let theirs =
            r#"{"id":1,"method":"resources/read","params":{"uri":"file:///raincheck://task/"}}"#;
        let ours = r#"{"id":1,"method":"resources/read","params":{"uri":"raincheck://task/x"}}"#;
        let cancelled = r#"{"method":"notifications/cancelled"}"#;
        let initialized = r#"{"method":"notifications/initialized"}"#;
        let cancel = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
        for (text, has_session, speaks_of_tasks, expected) in [
            (initialize, false, false, "initialize"),
            (initialize, true, false, "pass"),
            (initialize, true, true, "initialize"),
            (r#"{"id":1,"method":"tools/list"}"#, true, false, "tools"),
            (r#"{"id":1,"method":"tools/call"}"#, true, false, "call"),
            (r#"{"id":1,"method":"tasks/get"}"#, true, true, "task Get"),
            (r#"{"id":1,"method":"tasks/get"}"#, true, false, "pass"),
            (r#"{"id":1,"method":"tasks/update"}"#, true, true, "pass"),
            (r#"{"id":1,"method":"ping"}"#, true, true, "pass"),
            (theirs, true, true, "pass"),
            (ours, true, false, "result"),
            (cancel, true, false, "cancel"),
            (cancelled, true, false, "pass"),
            (initialized, true, true, "pass"),
            (r#"{"id":1,"result":{}}"#, true, false, "answer"),
            (r#"{"id":"q","result":{}}"#, true, false, "answer"),
            ("[]", true, true, "pass"),
        ] {
            let route = decided(text, has_session, speaks_of_tasks);
            assert_eq!(route, expected, "{text} {has_session} {speaks_of_tasks}");
        }
    }
}
