//! What becomes of a modern client's request: decided once from what it says, who sent it and what is known. Pure.
//!
//! A route that needs a word of the server names the question. Whoever asks it adds the answer to what is known
//! and decides again, so that no question goes to the server before the decision needs it.

use std::borrow::Cow;
use std::sync::Arc;

use super::idempotency::claim_of;
use super::request::Modern;
use super::requester::Requester;
use crate::downstream::companion::state::Companion;
use crate::mcp::error::RpcError;
use crate::mcp::json::is_object;
use crate::mcp::params;
use crate::mcp::request::Request;
use crate::mcp::tools::{Tool as ServerTool, Tools};
use crate::mcp::version::Era;
use crate::runner::Announce;
use crate::runner::claim::CallClaim;
use crate::runner::retry::read_state;
use crate::task::policy::{InputWhen, Plan, Rule, Rules, plan, with_companion};
use crate::task::ticket::{CompanionNames, CompanionTool, Ticket};

/// What becomes of a request.
#[derive(Debug)]
pub(in crate::downstream) enum Route<'k> {
    /// The decision needs a word of the server.
    Ask(Question),
    Refuse(RpcError),
    /// To the server as it came.
    Pass,
    /// `server/discover`.
    Discover,
    /// `tasks/*`, about a task in the store.
    Task,
    /// `subscriptions/listen`.
    Listen,
    /// One of our own tools, which have these names for this client.
    Companion(CompanionTool, CompanionNames, &'k Companion),
    /// A list that does not pass as the server gives it.
    List(Listed, CallTerms<'k>),
    Call(CallTerms<'k>),
}

/// What the server must be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Question {
    Era,
    Tools,
}

/// A list that does not pass as the server gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Listed {
    /// Our tools are in it.
    WithOurs,
    /// It is empty where the server has none.
    MaybeEmpty,
}

/// How a request is carried.
#[derive(Debug)]
pub(in crate::downstream) struct CallTerms<'k> {
    /// The server's.
    pub(in crate::downstream) era: Era,
    pub(in crate::downstream) rule: &'k Rule,
    pub(in crate::downstream) plan: Plan,
    /// What the call stands for beside itself.
    pub(in crate::downstream) claim: Option<CallClaim>,
    /// How the client hears of a task.
    pub(in crate::downstream) announce: Announce,
    /// The server calls the tool safe to repeat, and is believed.
    pub(in crate::downstream) repeatable: bool,
    /// The server runs the tool as a task of its own.
    pub(in crate::downstream) native_task: bool,
}

/// What is known of the server: more with each answer.
#[derive(Debug, Clone, Default)]
pub(in crate::downstream) struct KnownServer {
    pub(in crate::downstream) era: Option<Era>,
    /// It is decided how the server is spoken to.
    pub(in crate::downstream) is_decided: bool,
    /// The server is spoken to over HTTP.
    pub(in crate::downstream) speaks_http: bool,
    pub(in crate::downstream) tools: KnownTools,
}

/// The server's list of tools.
#[derive(Debug, Clone, Default)]
pub(in crate::downstream) enum KnownTools {
    #[default]
    NotAsked,
    /// The list cannot be had now.
    Unavailable,
    Listed(Arc<Tools>),
}

impl KnownTools {
    pub(in crate::downstream) fn is_asked(&self) -> bool {
        !matches!(self, Self::NotAsked)
    }

    pub(in crate::downstream) fn listed(&self) -> Option<&Tools> {
        match self {
            Self::NotAsked | Self::Unavailable => None,
            Self::Listed(tools) => Some(tools),
        }
    }

    pub(in crate::downstream) fn get(&self, tool: &str) -> Option<&ServerTool> {
        self.listed()?.get(tool)
    }
}

/// What is known of the server and of raincheck when a request is routed.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the decision needs"
)]
pub(in crate::downstream) struct Known<'k> {
    pub(in crate::downstream) rules: &'k Rules,
    /// A modern server's own tasks are the client's business.
    pub(in crate::downstream) keeps_native_tasks: bool,
    /// What the server calls read-only or idempotent may be run again.
    pub(in crate::downstream) trusts_annotations: bool,
    /// Our own tools, where they are wanted.
    pub(in crate::downstream) companion: Option<&'k Companion>,
    pub(in crate::downstream) server: KnownServer,
    /// The caller was told that the server may have everything.
    pub(in crate::downstream) had_stand_in: bool,
    /// Calls of the tool that the request names may have to wait for their turn.
    pub(in crate::downstream) is_limited: bool,
    /// The store does not know the task that the request names.
    pub(in crate::downstream) is_no_task_here: bool,
}

/// What becomes of a request of a modern client.
pub(in crate::downstream) fn route<'k>(
    modern: &Modern<'_>,
    by: &Requester,
    known: &Known<'k>,
) -> Route<'k> {
    let decided = match &*modern.request.method {
        "server/discover" => Ok(Route::Discover),
        "subscriptions/listen" => Ok(Route::Listen),
        "tools/call" => call(modern, by, known),
        method if method.starts_with("tasks/") && !known.is_no_task_here => Ok(Route::Task),
        _ => other(modern, known),
    };
    decided.unwrap_or_else(Route::Refuse)
}

fn call<'k>(modern: &Modern<'_>, by: &Requester, known: &Known<'k>) -> Result<Route<'k>, RpcError> {
    let (request, meta) = (&modern.request, &modern.meta);
    let name = tool_name(request)?;
    let rule = known.rules.for_tool(&name).0;
    let names = match known.companion {
        // A client that declares tasks follows them itself.
        Some(companion) if !meta.declares_tasks => {
            if !known.server.tools.is_asked() {
                return Ok(Route::Ask(Question::Tools));
            }
            companion.names(known.server.tools.listed())
        }
        Some(_) | None => None,
    };
    if let (Some(names), Some(companion)) = (&names, known.companion)
        && let Some(tool) = names.tool(&name)
    {
        return Ok(Route::Companion(tool, names.clone(), companion));
    }
    let is_retry = request.params.contains("inputResponses");
    let plan = match &names {
        // The client answers by coming back.
        Some(_) => with_companion(rule, InputWhen::BeforeTask),
        None => plan(rule, meta.declares_tasks, is_retry),
    };
    if plan == Plan::Refuse {
        return Err(RpcError::tasks_required());
    }
    let claim = claim_of(modern, by, rule)?;
    let Some(era) = known.server.era else {
        return Ok(Route::Ask(Question::Era));
    };
    let may_pass = era == Era::Modern && known.server.speaks_http && plan == Plan::Held;
    if may_pass && claim.is_none() && may_stream_past(modern, rule, known) {
        return Ok(Route::Pass);
    }
    // A task is created before the server sees the call, so what the server would refuse must be found here first.
    if !known.server.tools.is_asked() {
        return Ok(Route::Ask(Question::Tools));
    }
    // Where the list cannot be had the check is left to the server.
    let tool = known.server.tools.get(&name);
    if let Some(tool) = tool {
        let arguments = request.params.get("arguments");
        params::check(tool, arguments, modern.headers).map_err(RpcError::header_mismatch)?;
    }
    let announce = names.map_or(Announce::Task, |names| {
        Announce::Ticket(Ticket {
            names,
            client_era: Era::Modern,
            takes_large_events: by.takes_large_events,
        })
    });
    let requires_task = tool.is_some_and(ServerTool::requires_task);
    Ok(Route::Call(CallTerms {
        era,
        rule,
        plan,
        claim,
        announce,
        repeatable: known.trusts_annotations && tool.is_some_and(|tool| tool.repeatable),
        native_task: match era {
            Era::Legacy => requires_task,
            // A task of ours must not become one of the server's.
            Era::Modern => known.keeps_native_tasks && !matches!(plan, Plan::Always { .. }),
        },
    }))
}

/// Everything else that the server answers.
fn other<'k>(modern: &Modern<'_>, known: &Known<'k>) -> Result<Route<'k>, RpcError> {
    let method = &*modern.request.method;
    let Some(era) = known.server.era else {
        return Ok(Route::Ask(Question::Era));
    };
    let listed = listed(modern, known);
    let is_spoken = match era {
        Era::Legacy => is_translated(method),
        Era::Modern if known.server.speaks_http && listed.is_none() => return Ok(Route::Pass),
        // A program that speaks both eras would keep to the other one, for everybody on it.
        Era::Modern => known.server.speaks_http || method != "initialize",
    };
    if !is_spoken {
        return Err(RpcError::method_not_found());
    }
    let spec = CallTerms {
        era,
        rule: known.rules.for_tool("").0,
        plan: Plan::Held,
        claim: None,
        announce: Announce::Task,
        repeatable: false,
        native_task: known.keeps_native_tasks && era == Era::Modern,
    };
    Ok(match listed {
        Some(listed) => Route::List(listed, spec),
        None => Route::Call(spec),
    })
}

fn listed(modern: &Modern<'_>, known: &Known<'_>) -> Option<Listed> {
    let method = &*modern.request.method;
    if method == "tools/list" && known.companion.is_some() && !modern.meta.declares_tasks {
        return Some(Listed::WithOurs);
    }
    (known.had_stand_in && list_member(method).is_some()).then_some(Listed::MaybeEmpty)
}

/// Where the answer to a request for a list has the list.
pub(in crate::downstream) fn list_member(method: &str) -> Option<&'static str> {
    Some(match method {
        "tools/list" => "tools",
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        _ => return None,
    })
}

/// Whether a call may go to the server as it came.
fn may_stream_past(modern: &Modern<'_>, rule: &Rule, known: &Known<'_>) -> bool {
    let (request, meta) = (&modern.request, &modern.meta);
    // What speaks of tasks must not reach the server: only then the body is edited.
    let hides_tasks = meta.declares_tasks && !known.keeps_native_tasks;
    let untouched = !hides_tasks && !request.params.contains("task");
    let has_heartbeat = rule.heartbeat && meta.progress_token.is_some();
    // What streams past waits for no turn.
    untouched && !has_heartbeat && !has_state_of_ours(request) && !known.is_limited
}

/// Whether the request's state has the form of ours.
pub(in crate::downstream) fn has_state_of_ours(request: &Request<'_>) -> bool {
    let state = request.params.get_str("requestState");
    state.as_deref().and_then(read_state).is_some()
}

fn tool_name<'a>(request: &Request<'a>) -> Result<Cow<'a, str>, RpcError> {
    let arguments = request.params.get("arguments");
    if arguments.is_some_and(|raw| !is_object(raw)) {
        return Err(RpcError::invalid_params(
            "Invalid params: arguments must be an object",
        ));
    }
    let name = request.params.get_str("name");
    name.ok_or_else(|| RpcError::invalid_params("Invalid params: name must be a string"))
}

/// What a legacy server can be asked in the words of revision 2026-07-28. Its other methods were
/// removed there (`initialize`, `ping`, `logging/setLevel`, `resources/subscribe`), or never were.
pub(in crate::downstream) fn is_translated(method: &str) -> bool {
    matches!(
        method,
        "completion/complete"
            | "prompts/get"
            | "prompts/list"
            | "resources/list"
            | "resources/read"
            | "resources/templates/list"
            | "tools/call"
            | "tools/list"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::downstream::auth::Callers;
    use crate::downstream::inbound::request::{Inbound, ModernMessage};
    use crate::mcp::json::{Object, prepend};
    use crate::task::policy::Mode;

    /// A request: its method, its params, and what is in `_meta` beside the version.
    type Asked<'a> = (&'a str, &'a str, &'a str);

    const PLAIN: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    const TASKS: &str = r#""io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    const CALL: Asked<'_> = ("tools/call", r#"{"name":"t"}"#, PLAIN);
    const CALL_WITH_TASKS: Asked<'_> = ("tools/call", r#"{"name":"t"}"#, TASKS);

    /// A modern server over HTTP, and rules as they are where the operator says nothing.
    fn known(rules: &Rules) -> Known<'_> {
        Known {
            rules,
            keeps_native_tasks: false,
            trusts_annotations: false,
            companion: None,
            server: KnownServer {
                era: Some(Era::Modern),
                is_decided: true,
                speaks_http: true,
                tools: KnownTools::NotAsked,
            },
            had_stand_in: false,
            is_limited: false,
            is_no_task_here: false,
        }
    }

    fn decided((method, params, meta): Asked<'_>, known: &Known<'_>) -> String {
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
        let by = Requester::of(&Callers::new(&[1; 32]), &parts, Era::Modern, false);
        let read = Inbound::read(text.as_bytes())
            .modern(&parts.headers)
            .unwrap();
        let ModernMessage::Request(modern) = read else {
            panic!("no request: {text}");
        };
        shown(&route(&modern, &by, known))
    }

    fn shown(route: &Route<'_>) -> String {
        match route {
            Route::Ask(question) => format!("ask {question:?}"),
            Route::Refuse(error) => format!("refuse {}", error.code),
            Route::Pass => "pass".into(),
            Route::Discover => "discover".into(),
            Route::Task => "task".into(),
            Route::Listen => "listen".into(),
            Route::Companion(tool, _, _) => format!("companion {tool:?}"),
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
        let modern = known(&rules);
        let (mut legacy, mut unknown, mut over_lines) =
            (modern.clone(), modern.clone(), modern.clone());
        legacy.server.era = Some(Era::Legacy);
        unknown.server.era = None;
        over_lines.server.speaks_http = false;
        let elsewhere = Known {
            is_no_task_here: true,
            ..modern.clone()
        };
        for (method, known, expected) in [
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
                decided((method, params, PLAIN), known),
                expected,
                "{method}"
            );
        }
    }

    #[test]
    fn lists_are_read_where_something_of_ours_is_in_them() {
        let (rules, companion) = (Rules::default(), Companion::new("our_", Duration::ZERO));
        let plain = known(&rules);
        let with_ours = Known {
            companion: Some(&companion),
            ..plain.clone()
        };
        let stood_in = Known {
            had_stand_in: true,
            ..plain.clone()
        };
        for (method, meta, known, expected) in [
            ("tools/list", PLAIN, &plain, "pass"),
            ("tools/list", PLAIN, &with_ours, "list WithOurs"),
            ("tools/list", TASKS, &with_ours, "pass"),
            ("prompts/list", PLAIN, &with_ours, "pass"),
            ("prompts/list", PLAIN, &stood_in, "list MaybeEmpty"),
            ("prompts/get", PLAIN, &stood_in, "pass"),
        ] {
            assert_eq!(decided((method, "{}", meta), known), expected, "{method}");
        }
    }

    #[test]
    fn a_call_passes_where_nothing_of_ours_is_in_it() {
        let rules = Rules::default();
        let modern = known(&rules);
        let mut unknown = modern.clone();
        unknown.server.era = None;
        let limited = Known {
            is_limited: true,
            ..modern.clone()
        };
        let key = format!(r#"{PLAIN},"io.raincheck/idempotencyKey":"k""#);
        let bad_key = format!(r#"{PLAIN},"io.raincheck/idempotencyKey":1"#);
        let state = r#"{"name":"t","requestState":"raincheck-1"}"#;
        for (asked, known, expected) in [
            (CALL, &modern, "pass"),
            (CALL, &unknown, "ask Era"),
            (CALL, &limited, "ask Tools"),
            (CALL_WITH_TASKS, &modern, "ask Tools"),
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
            assert_eq!(decided(asked, known), expected, "{asked:?}");
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
            let mut known = known(&rules);
            known.server.era = Some(era);
            known.server.tools = KnownTools::Unavailable;
            assert_eq!(decided(asked, &known), expected, "{mode:?} {era:?}");
            let keeps = Known {
                keeps_native_tasks: true,
                ..known
            };
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
        let mut unknown = known(&rules);
        unknown.server.era = None;
        assert_eq!(decided(CALL, &unknown), "refuse -32021");
    }

    #[test]
    fn a_client_without_tasks_gets_a_ticket_where_there_are_companion_tools() {
        let (rules, companion) = (Rules::default(), Companion::new("our_", Duration::ZERO));
        let unasked = Known {
            companion: Some(&companion),
            ..known(&rules)
        };
        let mut asked = unasked.clone();
        asked.server.tools = KnownTools::Unavailable;
        let status = ("tools/call", r#"{"name":"task_status"}"#, PLAIN);
        for (call, known, expected) in [
            (CALL, &unasked, "ask Tools"),
            (CALL, &asked, "call auto ticket"),
            (status, &unasked, "ask Tools"),
            (status, &asked, "companion Status"),
            (CALL_WITH_TASKS, &asked, "call auto"),
        ] {
            assert_eq!(decided(call, known), expected, "{call:?}");
        }
    }
}
