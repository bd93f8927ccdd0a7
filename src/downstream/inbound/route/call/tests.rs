//! The decisions about calls on legacy sessions, as tables.

use super::*;
use crate::auth::callers::Callers;
use crate::downstream::companion::WhoHas;
use crate::downstream::inbound::idempotency::key_in_meta;
use crate::downstream::inbound::request::{Inbound, LegacyMessage};
use crate::downstream::inbound::route::KnownTools;
use crate::downstream::inbound::route::without_session::WithoutSession;
use crate::mcp::json::raw;
use crate::mcp::tools::Tools;
use crate::task::pauses::Pause;
use crate::task::pauses::Pauses;
use crate::task::policy::{Concurrency, Limit};
use std::sync::Arc;

const PLAIN: &str = r#"{"name":"t"}"#;
const TASK: &str = r#"{"name":"t","task":{}}"#;
const KEYED: &str = r#"{"name":"t","_meta":{"io.raincheck/idempotencyKey":"k"}}"#;
const KEYED_TASK: &str = r#"{"name":"t","task":{},"_meta":{"io.raincheck/idempotencyKey":"k"}}"#;

/// A server over HTTP.
fn facts(rules: &Rules) -> CallFacts<'_> {
    CallFacts {
        server: KnownServer {
            era: Some(Era::Legacy),
            is_decided: true,
            speaks_http: true,
            tools: KnownTools::NotAsked,
        },
        ..CallFacts::new(rules)
    }
}

/// The list of a server that runs the tool as a task of its own only.
fn own_task_only() -> KnownTools {
    let mut tools = Tools::default();
    let page =
        r#"{"tools":[{"name":"t","inputSchema":{},"execution":{"taskSupport":"required"}}]}"#;
    tools.add_page(&raw(page.to_owned()).unwrap()).unwrap();
    KnownTools::Listed(Arc::new(tools))
}

fn asked(mut facts: CallFacts<'_>) -> CallFacts<'_> {
    facts.server.tools = KnownTools::Unavailable;
    facts
}

/// The decision about a call on a session of 2025-11-25.
fn decided(params: &str, facts: &CallFacts<'_>) -> String {
    shown(&of_session(params, true, facts))
}

fn of_session(params: &str, speaks_of_tasks: bool, facts: &CallFacts<'_>) -> CallDecision {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let LegacyMessage::Request(request) = Inbound::read(text.as_bytes()).legacy() else {
        panic!("no request: {text}");
    };
    let head = hyper::Request::builder().header("mcp-session-id", "s");
    let (parts, ()) = head.body(()).unwrap().into_parts();
    let by = Requester::of(
        &Callers::new(&[1; 32]),
        &parts,
        Era::Legacy,
        None,
        None,
        Arc::default(),
    );
    let follows = match Follows::of_legacy(&request, speaks_of_tasks) {
        Ok(follows) => follows,
        Err(error) => return CallDecision::Refuse(error),
    };
    let intent = CallIntent {
        request: &request,
        key: key_in_meta(&request),
        follows,
        passing: Passing::OnSession,
        input: InputWhen::InTask,
        headers: None,
    };
    decide(&intent, &by, facts)
}

fn shown(decision: &CallDecision) -> String {
    match decision {
        CallDecision::Ask(fact, _) => format!("ask {fact:?}"),
        CallDecision::Pass => "pass".into(),
        CallDecision::Refuse(error) => format!("refuse {}", error.code),
        CallDecision::Companion(tool, ..) => format!("companion {tool:?}"),
        CallDecision::Run(terms) => {
            let is = |is: bool, word| if is { word } else { "" };
            [
                if terms.plan == NOW { "task" } else { "run" },
                is(terms.claim.is_some(), " claimed"),
                is(matches!(terms.announce, Announce::Ticket(_)), " ticket"),
                is(terms.native_task, " native"),
            ]
            .concat()
        }
    }
}

fn rules(mode: Mode, require_tasks: bool) -> Rules {
    let rule = Rule {
        mode,
        require_tasks,
        ..Rule::default()
    };
    Rules::new(rule, Vec::new())
}

#[test]
fn a_call_becomes_a_task_where_its_client_asks_for_one() {
    for (mode, require_tasks, params, expected) in [
        (Mode::Auto, false, TASK, "task"),
        (Mode::Auto, false, KEYED_TASK, "task claimed"),
        (Mode::Never, false, TASK, "refuse -32601"),
        (
            Mode::Auto,
            false,
            r#"{"name":"t","task":{"ttl":"x"}}"#,
            "refuse -32602",
        ),
        (
            Mode::Auto,
            false,
            r#"{"name":"t","task":{},"arguments":1}"#,
            "refuse -32602",
        ),
        (Mode::Auto, true, PLAIN, "refuse -32601"),
        (Mode::Never, true, PLAIN, "refuse -32601"),
        (Mode::Auto, false, PLAIN, "pass"),
        (Mode::Auto, false, r#"{"task":{}}"#, "pass"),
    ] {
        let rules = rules(mode, require_tasks);
        let facts = asked(facts(&rules));
        assert_eq!(decided(params, &facts), expected, "{mode:?} {params}");
    }
    let rules = Rules::default();
    let unasked = facts(&rules);
    assert_eq!(decided(TASK, &unasked), "ask Tools");
    let mut unknown = facts(&rules);
    unknown.server.era = None;
    assert_eq!(decided(TASK, &unknown), "ask Era");
    // To an older session the word has no meaning.
    let older = of_session(TASK, false, &asked(facts(&rules)));
    assert_eq!(shown(&older), "pass");
}

#[test]
fn a_task_of_the_server_s_own_has_no_key() {
    let rules = Rules::default();
    let mut keeps = CallFacts {
        keeps_native_tasks: true,
        ..facts(&rules)
    };
    keeps.server.tools = own_task_only();
    assert_eq!(decided(TASK, &keeps), "pass");
    assert_eq!(decided(KEYED_TASK, &keeps), "refuse -32602");
    let hides = CallFacts {
        keeps_native_tasks: false,
        requires_task: None,
        ..keeps
    };
    assert_eq!(decided(TASK, &hides), "task native");
    assert_eq!(decided(PLAIN, &hides), "run native");
}

#[test]
fn a_new_call_of_a_paused_tool_is_refused_before_the_server_is_asked() {
    let paused = |rules: Rules| {
        let pause = Pause {
            tools: "t".into(),
            since_ms: 0,
            until_ms: 1,
            reason: "".into(),
            by: "".into(),
        };
        rules.with_pauses(Arc::new(Pauses::default().with(pause).unwrap()))
    };
    let (plain, refused) = (paused(Rules::default()), "refuse -32603");
    let mut away = facts(&plain);
    away.server.era = None;
    away.is_limited = true;
    assert_eq!(decided(PLAIN, &away), refused);
    assert_eq!(decided(TASK, &away), refused);
    assert_eq!(decided(r#"{"name":"u","task":{}}"#, &away), "ask Era");
    // It may join a call that runs, or go on with one.
    assert_eq!(decided(KEYED_TASK, &away), "ask Era");
    let answers = r#"{"name":"t","task":{},"inputResponses":{"k":{}}}"#;
    assert_eq!(decided(answers, &away), "ask Era");
    let none = r#"{"name":"t","task":{},"inputResponses":{}}"#;
    assert_eq!(decided(none, &away), refused);
    let queues = paused(Rules::new(
        Rule {
            concurrency: Some(Concurrency::EachTool(Limit {
                at_once: 1,
                queue: 1,
            })),
            ..Rule::default()
        },
        Vec::new(),
    ));
    let mut waits = facts(&queues);
    waits.server.era = None;
    assert_eq!(decided(TASK, &waits), "ask Era");
    // No queue takes a task of the server's own.
    let mut keeps = CallFacts {
        keeps_native_tasks: true,
        ..facts(&queues)
    };
    keeps.server.tools = own_task_only();
    assert_eq!(decided(TASK, &keeps), refused);
}

#[test]
fn a_call_is_carried_where_passing_could_not_keep_a_promise() {
    let (rules, companion) = (Rules::default(), Companion::new("our_", WhoHas::All));
    let plain = facts(&rules);
    let limited = CallFacts {
        is_limited: true,
        ..plain.clone()
    };
    let with_ours = CallFacts {
        companion: Some(&companion),
        ..plain.clone()
    };
    let mut undecided = with_ours.clone();
    undecided.server.is_decided = false;
    let unheard = CallFacts {
        requires_task: None,
        ..plain.clone()
    };
    let mut unknown = limited.clone();
    unknown.server.era = None;
    let status = r#"{"name":"task_status"}"#;
    for (params, facts, expected) in [
        (PLAIN, &plain, "pass"),
        (KEYED, &plain, "ask Tools"),
        (KEYED, &asked(plain.clone()), "run claimed"),
        (PLAIN, &limited, "run"),
        (PLAIN, &unknown, "ask Era"),
        (PLAIN, &unheard, "ask Tools"),
        (PLAIN, &asked(unheard.clone()), "pass"),
        (PLAIN, &undecided, "pass"),
        (PLAIN, &with_ours, "ask Tools"),
        (PLAIN, &asked(with_ours.clone()), "run ticket"),
        (status, &asked(with_ours.clone()), "companion Status"),
    ] {
        assert_eq!(decided(params, facts), expected, "{params}");
    }
}

#[test]
fn a_call_on_a_session_that_is_not_known_passes_where_that_breaks_no_promise() {
    let rules = Rules::default();
    let strict = Rules::new(
        Rule {
            require_tasks: true,
            ..Rule::default()
        },
        Vec::new(),
    );
    let plain = asked(facts(&rules));
    let limited = CallFacts {
        is_limited: true,
        ..plain.clone()
    };
    let mut over_lines = limited.clone();
    over_lines.server.speaks_http = false;
    let (busy, pass) = (WithoutSession::Busy, WithoutSession::Pass);
    for (params, facts, names_session, expected) in [
        (TASK, &plain, true, pass),
        (TASK, &plain, false, pass),
        (TASK, &limited, true, busy),
        (TASK, &asked(facts(&strict)), true, busy),
        (KEYED_TASK, &plain, true, busy),
        (KEYED_TASK, &over_lines, true, pass),
        (KEYED, &plain, true, busy),
        (PLAIN, &limited, true, busy),
        (PLAIN, &limited, false, WithoutSession::Run),
        (PLAIN, &over_lines, true, pass),
    ] {
        let CallDecision::Run(terms) = of_session(params, true, facts) else {
            panic!("{params}");
        };
        let without = WithoutSession::of(&terms, facts, names_session);
        assert_eq!(without, expected, "{params} {names_session}");
    }
}

#[test]
fn a_wanted_ttl_is_kept_within_limits() {
    let rule = Rule {
        retention_ms: 10_000,
        ..Rule::default()
    };
    let rule = Arc::new(rule);
    let of = |ttl_ms| {
        let mut terms = CallTerms::held(None, &rule);
        keep_as_wished(&mut terms, Wish { ttl_ms });
        terms.rule.retention_ms
    };
    assert_eq!(of(None), 10_000);
    assert_eq!(of(Some(0)), 1_000);
    assert_eq!(of(Some(60_000)), 60_000);
    assert_eq!(of(Some(u64::MAX)), 240_000);
}
