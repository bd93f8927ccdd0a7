//! What becomes of calls on legacy sessions, as tables.

use super::*;
use crate::auth::callers::Callers;
use crate::downstream::companion::WhoHas;
use crate::downstream::inbound::request::{Inbound, LegacyMessage};
use crate::downstream::inbound::route::KnownTools;
use crate::mcp::json::raw;
use crate::mcp::tools::Tools;
use std::sync::Arc;

const PLAIN: &str = r#"{"name":"t"}"#;
const TASK: &str = r#"{"name":"t","task":{}}"#;
const KEYED: &str = r#"{"name":"t","_meta":{"io.raincheck/idempotencyKey":"k"}}"#;
const KEYED_TASK: &str = r#"{"name":"t","task":{},"_meta":{"io.raincheck/idempotencyKey":"k"}}"#;

/// A session of 2025-11-25 at a server over HTTP.
fn known(rules: &Rules) -> KnownOfCalls<'_> {
    KnownOfCalls {
        speaks_of_tasks: true,
        server: KnownServer {
            era: Some(Era::Legacy),
            is_decided: true,
            speaks_http: true,
            tools: KnownTools::NotAsked,
        },
        ..KnownOfCalls::new(rules)
    }
}

fn asked(mut known: KnownOfCalls<'_>) -> KnownOfCalls<'_> {
    known.server.tools = KnownTools::Unavailable;
    known
}

fn decided(params: &str, known: &KnownOfCalls<'_>) -> String {
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
    let op = match route_call(&request, &by, known) {
        CallRoute::Ask(question) => return format!("ask {question:?}"),
        CallRoute::AskSession => return "ask session".into(),
        CallRoute::Pass => return "pass".into(),
        CallRoute::Answer(op) => op,
    };
    match op {
        CallOp::Refuse(error) => format!("refuse {}", error.code),
        CallOp::Busy => "busy".into(),
        CallOp::Companion(tool, ..) => format!("companion {tool:?}"),
        CallOp::Task(spec) if spec.claim.is_some() => "task claimed".into(),
        CallOp::Task(_) => "task".into(),
        CallOp::Carry(spec) => {
            let is = |is: bool, word| if is { word } else { "" };
            [
                "carry",
                is(spec.claim.is_some(), " claimed"),
                is(matches!(spec.announce, Announce::Ticket(_)), " ticket"),
                is(spec.requires_task, " native"),
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
        let known = asked(known(&rules));
        assert_eq!(decided(params, &known), expected, "{mode:?} {params}");
    }
    let rules = Rules::default();
    let unasked = known(&rules);
    assert_eq!(decided(TASK, &unasked), "ask Tools");
    let mut unknown = known(&rules);
    unknown.server.era = None;
    assert_eq!(decided(TASK, &unknown), "ask Era");
    // To an older session the word has no meaning.
    let older = KnownOfCalls {
        speaks_of_tasks: false,
        ..asked(known(&rules))
    };
    assert_eq!(decided(TASK, &older), "pass");
}

#[test]
fn a_task_of_the_server_s_own_has_no_key() {
    let rules = Rules::default();
    let mut tools = Tools::default();
    let page =
        r#"{"tools":[{"name":"t","inputSchema":{},"execution":{"taskSupport":"required"}}]}"#;
    tools.add_page(&raw(page.to_owned()).unwrap()).unwrap();
    let mut keeps = KnownOfCalls {
        keeps_native_tasks: true,
        ..known(&rules)
    };
    keeps.server.tools = KnownTools::Listed(Arc::new(tools));
    assert_eq!(decided(TASK, &keeps), "pass");
    assert_eq!(decided(KEYED_TASK, &keeps), "refuse -32602");
    let hides = KnownOfCalls {
        keeps_native_tasks: false,
        requires_task: None,
        ..keeps
    };
    assert_eq!(decided(TASK, &hides), "task");
    assert_eq!(decided(PLAIN, &hides), "carry native");
}

#[test]
fn a_call_is_carried_where_passing_could_not_keep_a_promise() {
    let (rules, companion) = (Rules::default(), Companion::new("our_", WhoHas::All));
    let plain = known(&rules);
    let limited = KnownOfCalls {
        is_limited: true,
        ..plain.clone()
    };
    let with_ours = KnownOfCalls {
        companion: Some(&companion),
        ..plain.clone()
    };
    let mut undecided = with_ours.clone();
    undecided.server.is_decided = false;
    let unheard = KnownOfCalls {
        requires_task: None,
        ..plain.clone()
    };
    let mut unknown = limited.clone();
    unknown.server.era = None;
    let status = r#"{"name":"task_status"}"#;
    for (params, known, expected) in [
        (PLAIN, &plain, "pass"),
        (KEYED, &plain, "ask Tools"),
        (KEYED, &asked(plain.clone()), "carry claimed"),
        (PLAIN, &limited, "carry"),
        (PLAIN, &unknown, "ask Era"),
        (PLAIN, &unheard, "ask Tools"),
        (PLAIN, &asked(unheard.clone()), "pass"),
        (PLAIN, &undecided, "pass"),
        (PLAIN, &with_ours, "ask Tools"),
        (PLAIN, &asked(with_ours.clone()), "carry ticket"),
        (status, &asked(with_ours.clone()), "companion Status"),
    ] {
        assert_eq!(decided(params, known), expected, "{params}");
    }
}

#[test]
fn a_call_on_a_session_that_is_not_known_passes_where_that_breaks_no_promise() {
    let rules = Rules::default();
    let limited = |session, names_session| KnownOfCalls {
        is_limited: true,
        session,
        names_session,
        ..asked(known(&rules))
    };
    let plain = |session| KnownOfCalls {
        is_limited: false,
        ..limited(session, true)
    };
    let mut over_lines = limited(KnownSession::Unknown, true);
    over_lines.server.speaks_http = false;
    for (params, known, expected) in [
        (TASK, plain(KnownSession::NotAsked), "ask session"),
        (TASK, plain(KnownSession::Unknown), "pass"),
        (KEYED_TASK, plain(KnownSession::Unknown), "busy"),
        (KEYED_TASK, over_lines.clone(), "pass"),
        (PLAIN, plain(KnownSession::NotAsked), "pass"),
        (KEYED, plain(KnownSession::NotAsked), "ask session"),
        (KEYED, plain(KnownSession::Unknown), "busy"),
        (PLAIN, limited(KnownSession::NotAsked, true), "ask session"),
        (PLAIN, limited(KnownSession::NotAsked, false), "carry"),
        (PLAIN, limited(KnownSession::Unknown, true), "busy"),
        (PLAIN, over_lines.clone(), "pass"),
    ] {
        assert_eq!(
            decided(params, &known),
            expected,
            "{params} {:?}",
            known.session
        );
    }
    let strict = Rules::new(
        Rule {
            require_tasks: true,
            ..Rule::default()
        },
        Vec::new(),
    );
    let unknown = KnownOfCalls {
        session: KnownSession::Unknown,
        ..asked(known(&strict))
    };
    assert_eq!(decided(TASK, &unknown), "busy");
}

#[test]
fn a_wanted_ttl_is_kept_within_limits() {
    let rule = Rule {
        retention_ms: 10_000,
        ..Rule::default()
    };
    let of = |ttl_ms| retention_ms(Wish { ttl_ms }, &rule);
    assert_eq!(of(None), 10_000);
    assert_eq!(of(Some(0)), 1_000);
    assert_eq!(of(Some(60_000)), 60_000);
    assert_eq!(of(Some(u64::MAX)), 240_000);
}
