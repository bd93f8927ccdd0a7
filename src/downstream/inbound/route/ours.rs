//! The route of a request on a session of raincheck's own, in front of a modern server: decided once from the
//! request's content, its requester and the known facts. Pure.

use super::call::{CallOp, CallRoute, KnownOfCalls, TaskSpec, route_task};
use super::{MissingFact, TaskOp, is_translated, names_our_result};
use crate::downstream::inbound::idempotency::{claim_of_legacy, may_claim};
use crate::downstream::inbound::requester::Requester;
use crate::mcp::error::RpcError;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::Wish;
use crate::runner::Announce;
use crate::runner::claim::CallClaim;
use crate::task::ticket::{CompanionNames, CompanionTool, Ticket};

/// The route of a request.
#[derive(Debug)]
pub(in crate::downstream) enum OursRoute {
    /// The decision needs a word of the server.
    Ask(MissingFact),
    Refuse(RpcError),
    /// One of our own tools, which have these names for this client.
    Companion(CompanionTool, CompanionNames),
    /// A call that is a task from the start.
    MakeTask(Box<TaskSpec>),
    /// A request about a task, which may be in the store.
    Task(TaskOp),
    /// `resources/read` of a result that raincheck keeps.
    Result,
    /// A request about the session itself.
    Session(SessionOp),
    /// To the server, in the words of its revision.
    Translate(Translation),
}

/// The operation that a client asks of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum SessionOp {
    Ping,
    SetLogLevel,
    Subscribe,
    Unsubscribe,
}

/// The terms on which a request goes to the server.
#[derive(Debug, Default)]
pub(in crate::downstream) struct Translation {
    /// The claim under which the call stands for calls with the same name.
    pub(in crate::downstream) claim: Option<CallClaim>,
    /// The form in which the client is notified that its call takes long. `None`: the client waits for the answer.
    pub(in crate::downstream) ticket: Option<Announce>,
    /// The server calls the tool safe to repeat, and is believed.
    pub(in crate::downstream) repeatable: bool,
}

/// Routes a request of a session of raincheck's own. `is_no_task_here`: the store does not know the task that the
/// request names.
pub(in crate::downstream) fn route_ours(
    request: &Request<'_>,
    by: &Requester,
    known: &KnownOfCalls<'_>,
    is_no_task_here: bool,
) -> OursRoute {
    let op = match &*request.method {
        "tools/call" => return call(request, by, known).unwrap_or_else(OursRoute::Refuse),
        "resources/read" if names_our_result(request) => return OursRoute::Result,
        "ping" => SessionOp::Ping,
        "logging/setLevel" => SessionOp::SetLogLevel,
        "resources/subscribe" => SessionOp::Subscribe,
        "resources/unsubscribe" => SessionOp::Unsubscribe,
        method if is_translated(method) => return OursRoute::Translate(Translation::default()),
        method => {
            let may_be_task = known.speaks_of_tasks && !is_no_task_here;
            return match TaskOp::of(method).filter(|_| may_be_task) {
                Some(op) => OursRoute::Task(op),
                None => OursRoute::Refuse(RpcError::method_not_found()),
            };
        }
    };
    OursRoute::Session(op)
}

fn call(
    request: &Request<'_>,
    by: &Requester,
    known: &KnownOfCalls<'_>,
) -> Result<OursRoute, RpcError> {
    let name = request.params.get_str("name");
    let name = name.as_deref();
    let wishes_task = known.speaks_of_tasks && Wish::is_in(&request.params);
    let companion = known.companion.filter(|_| !wishes_task);
    let tools = &known.server.tools;
    if companion.is_some() && !tools.is_asked() {
        return Ok(OursRoute::Ask(MissingFact::Tools));
    }
    let names = companion.and_then(|companion| companion.names(tools.listed()));
    if let (Some(names), Some(name)) = (&names, name)
        && let Some(tool) = names.tool(name)
    {
        return Ok(OursRoute::Companion(tool, names.clone()));
    }
    match route_task(request, by, known) {
        CallRoute::Ask(question) => return Ok(OursRoute::Ask(question)),
        CallRoute::Answer(CallOp::Refuse(error)) => return Err(error),
        CallRoute::Answer(CallOp::Task(spec)) => return Ok(OursRoute::MakeTask(spec)),
        CallRoute::AskSession | CallRoute::Pass | CallRoute::Answer(_) => {}
    }
    let rule = known.rules.for_tool(name.unwrap_or_default()).0;
    let claim = match name {
        Some(_) if may_claim(request, by, rule) => claim_of_legacy(request, by, rule)?,
        Some(_) | None => None,
    };
    let ticket = names.map(|names| {
        Announce::Ticket(Ticket {
            names,
            client_era: by.era,
            takes_large_events: by.takes_large_events,
        })
    });
    let is_repeatable = || {
        name.and_then(|name| tools.get(name))
            .is_some_and(|tool| tool.repeatable)
    };
    Ok(OursRoute::Translate(Translation {
        claim,
        repeatable: ticket.is_some() && known.trusts_annotations && is_repeatable(),
        ticket,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::callers::Callers;
    use crate::downstream::companion::state::{Companion, WhoHas};
    use crate::downstream::inbound::request::{Inbound, LegacyMessage};
    use crate::downstream::inbound::route::{KnownServer, KnownTools};
    use crate::mcp::version::Era;
    use crate::task::policy::{Rule, Rules};

    fn known(rules: &Rules) -> KnownOfCalls<'_> {
        KnownOfCalls {
            speaks_of_tasks: true,
            server: KnownServer {
                era: Some(Era::Modern),
                is_decided: true,
                speaks_http: true,
                tools: KnownTools::Unavailable,
            },
            ..KnownOfCalls::new(rules)
        }
    }

    fn decided(method: &str, params: &str, known: &KnownOfCalls<'_>, is_no_task: bool) -> String {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let LegacyMessage::Request(request) = Inbound::read(text.as_bytes()).legacy() else {
            panic!("no request: {text}");
        };
        let head = hyper::Request::builder().header("mcp-session-id", "raincheck-s");
        let (parts, ()) = head.body(()).unwrap().into_parts();
        let by = Requester::of(
            &Callers::new(&[1; 32]),
            &parts,
            Era::Legacy,
            None,
            None,
            std::sync::Arc::default(),
        );
        match route_ours(&request, &by, known, is_no_task) {
            OursRoute::Ask(question) => format!("ask {question:?}"),
            OursRoute::Refuse(error) => format!("refuse {}", error.code),
            OursRoute::Companion(tool, ..) => format!("companion {tool:?}"),
            OursRoute::MakeTask(spec) if spec.claim.is_some() => "task claimed".into(),
            OursRoute::MakeTask(_) => "task".into(),
            OursRoute::Task(op) => format!("{op:?}"),
            OursRoute::Result => "result".into(),
            OursRoute::Session(op) => format!("{op:?}"),
            OursRoute::Translate(how) => {
                let is = |is: bool, word| if is { word } else { "" };
                let claimed = is(how.claim.is_some(), " claimed");
                ["translate", claimed, is(how.ticket.is_some(), " ticket")].concat()
            }
        }
    }

    #[test]
    fn each_request_has_its_part() {
        let rules = Rules::default();
        let known = known(&rules);
        let older = KnownOfCalls {
            speaks_of_tasks: false,
            ..known.clone()
        };
        for (method, known, is_no_task, expected) in [
            ("ping", &known, false, "Ping"),
            ("logging/setLevel", &known, false, "SetLogLevel"),
            ("resources/subscribe", &known, false, "Subscribe"),
            ("resources/unsubscribe", &known, false, "Unsubscribe"),
            ("tools/list", &known, false, "translate"),
            ("prompts/get", &known, false, "translate"),
            ("tasks/result", &known, false, "Result"),
            ("tasks/result", &known, true, "refuse -32601"),
            ("tasks/get", &older, false, "refuse -32601"),
            ("tasks/update", &known, false, "refuse -32601"),
            ("initialize", &known, false, "refuse -32601"),
            ("server/discover", &known, false, "refuse -32601"),
        ] {
            assert_eq!(
                decided(method, "{}", known, is_no_task),
                expected,
                "{method}"
            );
        }
    }

    #[test]
    fn a_call_is_ours_or_a_task_or_goes_to_the_server() {
        let (rules, companion) = (Rules::default(), Companion::new("our_", WhoHas::All));
        let plain = known(&rules);
        let with_ours = KnownOfCalls {
            companion: Some(&companion),
            ..plain.clone()
        };
        let mut unasked = with_ours.clone();
        unasked.server.tools = KnownTools::NotAsked;
        let only_as_task = Rules::new(
            Rule {
                require_tasks: true,
                ..Rule::default()
            },
            Vec::new(),
        );
        let strict = known(&only_as_task);
        let status = r#"{"name":"task_status"}"#;
        let keyed = r#"{"name":"t","_meta":{"io.raincheck/idempotencyKey":"k"}}"#;
        for (params, known, expected) in [
            (r#"{"name":"t"}"#, &plain, "translate"),
            ("{}", &plain, "translate"),
            (keyed, &plain, "translate claimed"),
            (r#"{"name":"t","task":{}}"#, &plain, "task"),
            (r#"{"name":"t","task":{}}"#, &with_ours, "task"),
            (
                r#"{"name":"t","task":{"ttl":"x"}}"#,
                &plain,
                "refuse -32602",
            ),
            (r#"{"name":"t"}"#, &strict, "refuse -32601"),
            (r#"{"name":"t"}"#, &with_ours, "translate ticket"),
            (status, &with_ours, "companion Status"),
            (status, &unasked, "ask Tools"),
            (status, &plain, "translate"),
        ] {
            assert_eq!(
                decided("tools/call", params, known, false),
                expected,
                "{params}"
            );
        }
    }
}
