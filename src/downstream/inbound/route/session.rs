//! What of a legacy session raincheck reads: pure. All else passes to the server as it is.

use serde_json::value::RawValue;

use super::super::request::LegacyMessage;
use super::super::requester::Requester;
use crate::mcp::json::Object;
use crate::mcp::request::Request;

/// What raincheck has to do with a message.
#[derive(Debug, Clone, Copy)]
pub(in crate::downstream) enum SessionRoute<'m, 'a> {
    /// `initialize`: the answer says that there are tasks.
    Initialize(&'m Request<'a>),
    /// `tools/list`: the answer may say which tools run as tasks, and have our tools in it.
    Tools(&'m Request<'a>),
    /// `tools/call`.
    Call(&'m Request<'a>),
    /// `tasks/*`: about a task in the store, maybe.
    Task(&'m Request<'a>),
    /// The client waits for the request of this id no more.
    Cancel(&'a RawValue),
    /// To a question under this id, of a task or of a call that raincheck carries, maybe.
    Answer(&'a RawValue, &'m Object<'a>),
    /// The server's own business.
    Pass,
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
            method if speaks_of_tasks && method.starts_with("tasks/") => {
                SessionRoute::Task(request)
            }
            _ => SessionRoute::Pass,
        },
        LegacyMessage::Notification(..) => message
            .cancels()
            .map_or(SessionRoute::Pass, SessionRoute::Cancel),
        LegacyMessage::Answer(id, message) => SessionRoute::Answer(id, message),
        LegacyMessage::Unclear(_) => SessionRoute::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::callers::Callers;
    use crate::downstream::inbound::request::Inbound;
    use crate::mcp::version::Era;

    fn decided(text: &str, has_session: bool, speaks_of_tasks: bool) -> &'static str {
        let message = Inbound::read(text.as_bytes()).legacy();
        let mut head = hyper::Request::builder();
        if has_session {
            head = head.header("mcp-session-id", "s");
        }
        let (parts, ()) = head.body(()).unwrap().into_parts();
        let by = Requester::of(&Callers::new(&[1; 32]), &parts, Era::Legacy, false);
        match route_session(&message, &by, speaks_of_tasks) {
            SessionRoute::Initialize(_) => "initialize",
            SessionRoute::Tools(_) => "tools",
            SessionRoute::Call(_) => "call",
            SessionRoute::Task(_) => "task",
            SessionRoute::Cancel(_) => "cancel",
            SessionRoute::Answer(..) => "answer",
            SessionRoute::Pass => "pass",
        }
    }

    #[test]
    fn only_what_raincheck_has_to_do_with_is_read() {
        for (text, has_session, speaks_of_tasks, expected) in [
            (
                r#"{"id":1,"method":"initialize"}"#,
                false,
                false,
                "initialize",
            ),
            (r#"{"id":1,"method":"initialize"}"#, true, false, "pass"),
            (
                r#"{"id":1,"method":"initialize"}"#,
                true,
                true,
                "initialize",
            ),
            (r#"{"id":1,"method":"tools/list"}"#, true, false, "tools"),
            (r#"{"id":1,"method":"tools/call"}"#, true, false, "call"),
            (r#"{"id":1,"method":"tasks/get"}"#, true, true, "task"),
            (r#"{"id":1,"method":"tasks/get"}"#, true, false, "pass"),
            (r#"{"id":1,"method":"ping"}"#, true, true, "pass"),
            (
                r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#,
                true,
                false,
                "cancel",
            ),
            (
                r#"{"method":"notifications/cancelled"}"#,
                true,
                false,
                "pass",
            ),
            (
                r#"{"method":"notifications/initialized"}"#,
                true,
                true,
                "pass",
            ),
            (r#"{"id":1,"result":{}}"#, true, false, "answer"),
            ("[]", true, true, "pass"),
        ] {
            let route = decided(text, has_session, speaks_of_tasks);
            assert_eq!(route, expected, "{text} {has_session} {speaks_of_tasks}");
        }
    }
}
