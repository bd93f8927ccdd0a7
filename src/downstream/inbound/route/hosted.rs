//! The route of a request on a hosted session, which is in front of a modern server: decided once from the
//! request's content, its requester and the known facts. Pure.

use super::call::{CallDecision, CallFacts, CallIntent, Follows, Passing, decide};
use super::{MissingFact, TaskOp, is_translated, names_our_result};
use crate::downstream::inbound::idempotency::key_in_meta;
use crate::downstream::inbound::requester::Requester;
use crate::mcp::error::RpcError;
use crate::mcp::request::Request;
use crate::runner::CallTerms;
use crate::task::policy::InputWhen;
use crate::task::ticket::{CompanionNames, CompanionTool};

/// The route of a request.
#[derive(Debug)]
pub(in crate::downstream) enum HostedRoute {
    /// The decision needs a word of the server.
    Ask(MissingFact),
    Refuse(RpcError),
    /// One of our own tools, which have these names for this client.
    Companion(CompanionTool, CompanionNames),
    /// A call that raincheck runs.
    Call(Box<CallTerms>),
    /// A request about a task, which may be in the store.
    Task(TaskOp),
    /// `resources/read` of a result that raincheck keeps.
    Result,
    /// A request about the session itself.
    Session(SessionOp),
    /// To the server, in the words of its revision. The client waits for the answer.
    Translate,
}

/// The operation that a client asks of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum SessionOp {
    Ping,
    SetLogLevel,
    Subscribe,
    Unsubscribe,
}

/// The known facts about the server and raincheck when a request is routed.
#[derive(Debug, Clone)]
pub(in crate::downstream) struct HostedFacts<'k> {
    pub(in crate::downstream) calls: CallFacts<'k>,
    /// The session speaks of tasks as 2025-11-25 does.
    pub(in crate::downstream) speaks_of_tasks: bool,
    /// The store does not know the task that the request names.
    pub(in crate::downstream) is_no_task_here: bool,
}

/// Routes a request on a hosted session.
pub(in crate::downstream) fn route_hosted(
    request: &Request<'_>,
    by: &Requester,
    facts: &HostedFacts<'_>,
) -> HostedRoute {
    let op = match &*request.method {
        "tools/call" => return call(request, by, facts),
        "resources/read" if names_our_result(request) => return HostedRoute::Result,
        "ping" => SessionOp::Ping,
        "logging/setLevel" => SessionOp::SetLogLevel,
        "resources/subscribe" => SessionOp::Subscribe,
        "resources/unsubscribe" => SessionOp::Unsubscribe,
        method if is_translated(method) => return HostedRoute::Translate,
        method => {
            let may_be_task = facts.speaks_of_tasks && !facts.is_no_task_here;
            return match TaskOp::of(method).filter(|_| may_be_task) {
                Some(op) => HostedRoute::Task(op),
                None => HostedRoute::Refuse(RpcError::method_not_found()),
            };
        }
    };
    HostedRoute::Session(op)
}

fn call(request: &Request<'_>, by: &Requester, facts: &HostedFacts<'_>) -> HostedRoute {
    let follows = match Follows::of_legacy(request, facts.speaks_of_tasks) {
        Ok(follows) => follows,
        Err(error) => return HostedRoute::Refuse(error),
    };
    let intent = CallIntent {
        request,
        key: key_in_meta(request),
        follows,
        // The server speaks another revision than this session, so no call can pass as it is.
        passing: Passing::Never,
        input: InputWhen::BeforeTask,
        headers: None,
    };
    match decide(&intent, by, &facts.calls) {
        CallDecision::Ask(fact, _) => HostedRoute::Ask(fact),
        CallDecision::Pass => HostedRoute::Translate,
        CallDecision::Refuse(error) => HostedRoute::Refuse(error),
        CallDecision::Companion(tool, names) => HostedRoute::Companion(tool, names),
        CallDecision::Run(terms) => HostedRoute::Call(terms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::callers::Callers;
    use crate::downstream::companion::state::{Companion, WhoHas};
    use crate::downstream::inbound::request::{Inbound, LegacyMessage};
    use crate::downstream::inbound::route::{KnownServer, KnownTools};
    use crate::mcp::version::Era;
    use crate::runner::Announce;
    use crate::task::plan::Plan;
    use crate::task::policy::{Rule, Rules};

    fn facts(rules: &Rules) -> HostedFacts<'_> {
        HostedFacts {
            calls: CallFacts {
                server: KnownServer {
                    era: Some(Era::Modern),
                    is_decided: true,
                    speaks_http: true,
                    tools: KnownTools::Unavailable,
                },
                ..CallFacts::new(rules)
            },
            speaks_of_tasks: true,
            is_no_task_here: false,
        }
    }

    fn decided(method: &str, params: &str, facts: &HostedFacts<'_>) -> String {
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
        match route_hosted(&request, &by, facts) {
            HostedRoute::Ask(question) => format!("ask {question:?}"),
            HostedRoute::Refuse(error) => format!("refuse {}", error.code),
            HostedRoute::Companion(tool, ..) => format!("companion {tool:?}"),
            HostedRoute::Call(terms) => {
                let is = |is: bool, word| if is { word } else { "" };
                let is_task = matches!(terms.plan, Plan::Always { .. });
                [
                    if is_task { "task" } else { "call" },
                    is(terms.claim.is_some(), " claimed"),
                    is(matches!(terms.announce, Announce::Ticket(_)), " ticket"),
                ]
                .concat()
            }
            HostedRoute::Task(op) => format!("{op:?}"),
            HostedRoute::Result => "result".into(),
            HostedRoute::Session(op) => format!("{op:?}"),
            HostedRoute::Translate => "translate".into(),
        }
    }

    #[test]
    fn each_request_has_its_part() {
        let rules = Rules::default();
        let facts = facts(&rules);
        let older = HostedFacts {
            speaks_of_tasks: false,
            ..facts.clone()
        };
        let elsewhere = HostedFacts {
            is_no_task_here: true,
            ..facts.clone()
        };
        for (method, facts, expected) in [
            ("ping", &facts, "Ping"),
            ("logging/setLevel", &facts, "SetLogLevel"),
            ("resources/subscribe", &facts, "Subscribe"),
            ("resources/unsubscribe", &facts, "Unsubscribe"),
            ("tools/list", &facts, "translate"),
            ("prompts/get", &facts, "translate"),
            ("tasks/result", &facts, "Result"),
            ("tasks/result", &elsewhere, "refuse -32601"),
            ("tasks/get", &older, "refuse -32601"),
            ("tasks/update", &facts, "refuse -32601"),
            ("initialize", &facts, "refuse -32601"),
            ("server/discover", &facts, "refuse -32601"),
        ] {
            assert_eq!(decided(method, "{}", facts), expected, "{method}");
        }
    }

    #[test]
    fn a_call_is_carried_or_a_task_or_goes_to_the_server() {
        let (rules, companion) = (Rules::default(), Companion::new("our_", WhoHas::All));
        let plain = facts(&rules);
        let mut with_ours = plain.clone();
        with_ours.calls.companion = Some(&companion);
        let mut unasked = with_ours.clone();
        unasked.calls.server.tools = KnownTools::NotAsked;
        let only_as_task = Rules::new(
            Rule {
                require_tasks: true,
                ..Rule::default()
            },
            Vec::new(),
        );
        let strict = facts(&only_as_task);
        let older = HostedFacts {
            speaks_of_tasks: false,
            ..strict.clone()
        };
        let status = r#"{"name":"task_status"}"#;
        let keyed = r#"{"name":"t","_meta":{"io.raincheck/idempotencyKey":"k"}}"#;
        for (params, facts, expected) in [
            (r#"{"name":"t"}"#, &plain, "call"),
            ("{}", &plain, "refuse -32602"),
            (r#"{"name":"t","arguments":1}"#, &plain, "refuse -32602"),
            (keyed, &plain, "call claimed"),
            (r#"{"name":"t","task":{}}"#, &plain, "task"),
            (r#"{"name":"t","task":{}}"#, &with_ours, "task"),
            (
                r#"{"name":"t","task":{"ttl":"x"}}"#,
                &plain,
                "refuse -32602",
            ),
            (r#"{"name":"t"}"#, &strict, "refuse -32601"),
            (r#"{"name":"t"}"#, &older, "refuse -32601"),
            (r#"{"name":"t"}"#, &with_ours, "call ticket"),
            (status, &with_ours, "companion Status"),
            (status, &unasked, "ask Tools"),
            (status, &plain, "call"),
        ] {
            assert_eq!(decided("tools/call", params, facts), expected, "{params}");
        }
    }
}
