//! What becomes of the requests of modern clients, as tables.

use std::time::Duration;

use super::*;
use crate::auth::callers::Callers;
use crate::downstream::companion::{Companion, WhoHas};
use crate::downstream::inbound::request::{Inbound, ModernMessage};
use crate::downstream::inbound::route::{KnownServer, KnownTools};
use crate::mcp::json::{Object, prepend};
use crate::runner::Announce;
use crate::task::plan::Plan;
use crate::task::policy::{Mode, Rule, Rules};

/// A request: its method, its params, and what is in `_meta` beside the version.
type RequestWords<'a> = (&'a str, &'a str, &'a str);

const PLAIN: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
const TASKS: &str = r#""io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const CALL: RequestWords<'_> = ("tools/call", r#"{"name":"t"}"#, PLAIN);
const CALL_WITH_TASKS: RequestWords<'_> = ("tools/call", r#"{"name":"t"}"#, TASKS);

/// A modern server over HTTP, and rules as they are where the operator says nothing.
fn facts(rules: &Rules) -> RequestFacts<'_> {
    RequestFacts {
        calls: CallFacts {
            server: KnownServer {
                era: Some(Era::Modern),
                is_decided: true,
                speaks_http: true,
                tools: KnownTools::NotAsked,
            },
            ..CallFacts::new(rules)
        },
        had_stand_in: false,
        is_no_task_here: false,
        events: EventsFor::Nobody,
    }
}

/// The facts with a change of those about calls.
fn with<'k>(facts: &RequestFacts<'k>, change: impl FnOnce(&mut CallFacts<'k>)) -> RequestFacts<'k> {
    let mut changed = facts.clone();
    change(&mut changed.calls);
    changed
}

fn decided((method, params, meta): RequestWords<'_>, facts: &RequestFacts<'_>) -> String {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let params = prepend(params, "_meta", &format!("{{{version},{meta}}}"));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let mut head = hyper::Request::builder()
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    let params = Object::parse(&params).unwrap();
    if let Some(name) = params.get_str("name") {
        head = head.header("mcp-name", &*name);
    }
    let (parts, ()) = head.body(()).unwrap().into_parts();
    let by = Requester::of(
        &Callers::new(&[1; 32]),
        &parts,
        Era::Modern,
        None,
        None,
        Arc::default(),
    );
    let read = Inbound::read(text.as_bytes())
        .modern(&parts.headers)
        .unwrap();
    let ModernMessage::Request(modern) = read else {
        panic!("no request: {text}");
    };
    shown(&route(&modern, &by, facts))
}

fn shown(route: &Route<'_>) -> String {
    match route {
        Route::Ask(question, None) => format!("ask {question:?}"),
        Route::Ask(question, Some(patience)) => format!("ask {question:?} for {patience:?}"),
        Route::Refuse(error) => format!("refuse {}", error.code),
        Route::Pass => "pass".into(),
        Route::PassWithHeartbeat => "pass with heartbeat".into(),
        Route::Discover => "discover".into(),
        Route::Task => "task".into(),
        Route::Result => "result".into(),
        Route::Listen => "listen".into(),
        Route::Event(op, _) => format!("event {op:?}"),
        Route::Companion(tool, _) => format!("companion {tool:?}"),
        Route::List(listed, _) => format!("list {listed:?}"),
        Route::Call(spec) => {
            let plan = match spec.plan {
                Plan::Refuse => "refused",
                Plan::Held => "held",
                Plan::Auto { .. } => "auto",
                Plan::Always { .. } => "always",
            };
            let is = |is: bool, word| if is { word } else { "" };
            [
                "call ",
                plan,
                is(spec.claim.is_some(), " claimed"),
                is(matches!(spec.announce, Announce::Ticket(_)), " ticket"),
                is(spec.native_task, " native"),
            ]
            .concat()
        }
    }
}

fn rules(rule: Rule) -> Rules {
    Rules::new(rule, Vec::new())
}

#[test]
fn what_is_no_call_goes_by_its_method() {
    let rules = Rules::default();
    let modern = facts(&rules);
    let legacy = with(&modern, |calls| calls.server.era = Some(Era::Legacy));
    let unknown = with(&modern, |calls| calls.server.era = None);
    let over_lines = with(&modern, |calls| calls.server.speaks_http = false);
    let elsewhere = RequestFacts {
        is_no_task_here: true,
        ..modern.clone()
    };
    for (method, facts, expected) in [
        ("server/discover", &unknown, "discover"),
        ("subscriptions/listen", &unknown, "listen"),
        ("tasks/get", &unknown, "task"),
        ("tasks/get", &elsewhere, "pass"),
        ("prompts/list", &unknown, "ask Era"),
        ("prompts/list", &modern, "pass"),
        ("prompts/list", &legacy, "call held"),
        ("prompts/list", &over_lines, "call held"),
        ("ping", &modern, "pass"),
        ("ping", &legacy, "refuse -32601"),
        ("ping", &over_lines, "call held"),
        ("initialize", &modern, "pass"),
        ("initialize", &over_lines, "refuse -32601"),
    ] {
        let params = r#"{"taskId":"x"}"#;
        assert_eq!(
            decided((method, params, PLAIN), facts),
            expected,
            "{method}"
        );
    }
}

#[test]
fn lists_are_read_where_something_of_ours_is_in_them() {
    let (unsaid, companion) = (Rules::default(), Companion::new("our_", WhoHas::All));
    let plain = facts(&unsaid);
    let with_ours = with(&plain, |calls| calls.companion = Some(&companion));
    let stood_in = RequestFacts {
        had_stand_in: true,
        ..plain.clone()
    };
    let sized = rules(Rule {
        max_result_size_chars: Some(7),
        ..Rule::default()
    });
    let by_rules = facts(&sized);
    let both = with(&by_rules, |calls| calls.companion = Some(&companion));
    for (method, meta, facts, expected) in [
        ("tools/list", PLAIN, &by_rules, "list ByRules"),
        ("tools/list", TASKS, &both, "list ByRules"),
        ("tools/list", PLAIN, &both, "list WithOurs"),
        ("prompts/list", PLAIN, &by_rules, "pass"),
        ("tools/list", PLAIN, &plain, "pass"),
        ("tools/list", PLAIN, &with_ours, "list WithOurs"),
        ("tools/list", TASKS, &with_ours, "pass"),
        ("prompts/list", PLAIN, &with_ours, "pass"),
        ("prompts/list", PLAIN, &stood_in, "list MaybeEmpty"),
        ("prompts/get", PLAIN, &stood_in, "pass"),
    ] {
        assert_eq!(decided((method, "{}", meta), facts), expected, "{method}");
    }
}

#[test]
fn a_call_passes_where_nothing_of_ours_is_in_it() {
    let rules = Rules::default();
    let modern = facts(&rules);
    let unknown = with(&modern, |calls| calls.server.era = None);
    // The server does not answer in time.
    let late = with(&unknown, |calls| calls.is_late = true);
    let limited = with(&modern, |calls| calls.is_limited = true);
    let key = format!(r#"{PLAIN},"io.raincheck/idempotencyKey":"k""#);
    let bad_key = format!(r#"{PLAIN},"io.raincheck/idempotencyKey":1"#);
    let state = r#"{"name":"t","requestState":"raincheck-1"}"#;
    let wants_progress = format!(r#"{PLAIN},"progressToken":1"#);
    let with_progress = ("tools/call", r#"{"name":"t"}"#, &*wants_progress);
    for (asked, facts, expected) in [
        (with_progress, &modern, "pass with heartbeat"),
        (with_progress, &limited, "ask Tools"),
        (CALL, &modern, "pass"),
        (CALL, &unknown, "ask Era"),
        (CALL, &limited, "ask Tools"),
        (CALL_WITH_TASKS, &modern, "ask Tools for 2s"),
        (CALL_WITH_TASKS, &unknown, "ask Era for 2s"),
        (CALL_WITH_TASKS, &late, "call always"),
        (
            ("tools/call", r#"{"name":"t"}"#, &*key),
            &modern,
            "ask Tools",
        ),
        (
            ("tools/call", r#"{"name":"t"}"#, &*bad_key),
            &unknown,
            "refuse -32602",
        ),
        (
            ("tools/call", r#"{"name":"t","task":{}}"#, PLAIN),
            &modern,
            "ask Tools",
        ),
        // The state of another server's.
        (("tools/call", state, PLAIN), &modern, "pass"),
        (
            ("tools/call", r#"{"name":1}"#, PLAIN),
            &unknown,
            "refuse -32602",
        ),
        (
            ("tools/call", r#"{"name":"t","arguments":[]}"#, PLAIN),
            &unknown,
            "refuse -32602",
        ),
    ] {
        assert_eq!(decided(asked, facts), expected, "{asked:?}");
    }
}

#[test]
fn a_call_is_carried_by_the_rule() {
    let key = format!(r#"{PLAIN},"io.raincheck/idempotencyKey":"k""#);
    let key = ("tools/call", r#"{"name":"t"}"#, &*key);
    let with_mode = |mode| {
        rules(Rule {
            mode,
            ..Rule::default()
        })
    };
    for (mode, era, asked, expected) in [
        (Mode::Auto, Era::Modern, CALL_WITH_TASKS, "call auto"),
        (Mode::Always, Era::Modern, CALL_WITH_TASKS, "call always"),
        (Mode::Never, Era::Modern, CALL_WITH_TASKS, "call held"),
        (Mode::Always, Era::Legacy, CALL_WITH_TASKS, "call always"),
        (Mode::Always, Era::Legacy, CALL, "call held"),
        (Mode::Auto, Era::Modern, key, "call held claimed"),
    ] {
        let rules = with_mode(mode);
        let facts = with(&facts(&rules), |calls| {
            calls.server.era = Some(era);
            calls.server.tools = KnownTools::Unavailable;
        });
        assert_eq!(decided(asked, &facts), expected, "{mode:?} {era:?}");
        let keeps = with(&facts, |calls| calls.keeps_native_tasks = true);
        let passes = asked == CALL_WITH_TASKS && mode == Mode::Never;
        let is_native = era == Era::Modern && mode != Mode::Always;
        let expected = match (passes, is_native) {
            (true, _) => "pass".to_owned(),
            (false, true) => format!("{expected} native"),
            (false, false) => expected.to_owned(),
        };
        assert_eq!(decided(asked, &keeps), expected, "{mode:?} {era:?} kept");
    }
    let rules = rules(Rule {
        require_tasks: true,
        ..Rule::default()
    });
    let unknown = with(&facts(&rules), |calls| calls.server.era = None);
    assert_eq!(decided(CALL, &unknown), "refuse -32021");
}

#[test]
fn a_client_without_tasks_gets_a_ticket_where_there_are_companion_tools() {
    let (rules, companion) = (Rules::default(), Companion::new("our_", WhoHas::All));
    let unasked = with(&facts(&rules), |calls| calls.companion = Some(&companion));
    let asked = with(&unasked, |calls| {
        calls.server.tools = KnownTools::Unavailable;
    });
    let status = ("tools/call", r#"{"name":"task_status"}"#, PLAIN);
    for (call, facts, expected) in [
        (CALL, &unasked, "ask Tools"),
        (CALL, &asked, "call auto ticket"),
        (status, &unasked, "ask Tools"),
        (status, &asked, "companion Status"),
        (CALL_WITH_TASKS, &asked, "call auto"),
    ] {
        assert_eq!(decided(call, facts), expected, "{call:?}");
    }
}

#[test]
fn events_are_ours_or_the_servers_by_their_names() {
    let rules = Rules::default();
    let off = facts(&rules);
    let (mut others, mut on) = (off.clone(), off.clone());
    others.events = EventsFor::Others;
    let events = Arc::new(Events::new(Duration::from_secs(5), None));
    on.events = EventsFor::ThisClient(&events);
    let legacy = with(&on, |calls| calls.server.era = Some(Era::Legacy));
    let (ours, theirs) = (r#"{"name":"raincheck.task.updated"}"#, r#"{"name":"x"}"#);
    for (method, params, facts, expected) in [
        ("events/poll", ours, &off, "pass"),
        ("events/poll", ours, &others, "refuse -32012"),
        ("events/poll", ours, &on, "event Poll"),
        ("events/stream", ours, &legacy, "event Stream"),
        ("events/subscribe", ours, &on, "event Subscribe"),
        ("events/poll", theirs, &others, "pass"),
        ("events/poll", theirs, &on, "pass"),
        ("events/poll", theirs, &legacy, "refuse -32011"),
        ("events/list", "{}", &off, "pass"),
        ("events/list", "{}", &others, "pass"),
        ("events/list", "{}", &on, "list WithEvents"),
        ("events/list", "{}", &legacy, "event List"),
    ] {
        assert_eq!(
            decided((method, params, PLAIN), facts),
            expected,
            "{method}"
        );
    }
}
