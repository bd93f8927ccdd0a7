//! The route of a `tools/call` on a legacy session: decided once, as for modern clients. Pure.

use super::super::idempotency::{claim_of_legacy, has_key, may_claim};
use super::super::requester::Requester;
use super::{KnownServer, MissingFact};
use crate::downstream::companion::state::Companion;
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::Object;
use crate::mcp::params::has_arguments_or_none;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::Wish;
use crate::mcp::tools::{OwnTask, Tool as ServerTool};
use crate::mcp::version::Era;
use crate::runner::Announce;
use crate::runner::claim::CallClaim;
use crate::task::plan::{Plan, plan, with_companion};
use crate::task::policy::{InputWhen, Mode, Rule, Rules};
use crate::task::ticket::{CompanionNames, CompanionTool, Ticket};

/// The store keeps a finished task at least this long, even if the client asks for a shorter `ttl`.
const RETENTION_MS_MIN: u64 = 1_000;

/// A finished task stays at most so many times as long as the operator's own `retention`.
const RETENTIONS_MAX: u64 = 24;

/// Of two members of one name, two readers could take different ones.
const RESERVED: [&str; 4] = ["_meta", "name", "arguments", "task"];

/// The route of a call.
#[derive(Debug)]
pub(in crate::downstream) enum CallRoute<'k> {
    /// The decision needs a word of the server.
    Ask(MissingFact),
    /// The decision needs the client's session at the server.
    AskSession,
    /// To the server, on the client's own session.
    Pass,
    Answer(CallOp<'k>),
}

/// The operation by which raincheck answers a call that does not pass.
#[derive(Debug)]
pub(in crate::downstream) enum CallOp<'k> {
    Refuse(RpcError),
    /// The client's session cannot be used now, and the call must not pass.
    Busy,
    /// One of our own tools, which have these names for this client.
    Companion(CompanionTool, CompanionNames),
    /// A task from the start.
    Task(Box<TaskSpec>),
    /// Raincheck carries the call for the client, which waits.
    Carry(Box<CarrySpec<'k>>),
}

/// The terms on which a call becomes a task.
#[derive(Debug)]
pub(in crate::downstream) struct TaskSpec {
    pub(in crate::downstream) rule: Rule,
    pub(in crate::downstream) claim: Option<CallClaim>,
    pub(in crate::downstream) repeatable: bool,
    /// The server runs the tool as a task of its own, and in no other way.
    pub(in crate::downstream) requires_task: bool,
}

/// The terms on which a call is carried.
#[derive(Debug)]
pub(in crate::downstream) struct CarrySpec<'k> {
    pub(in crate::downstream) rule: &'k Rule,
    pub(in crate::downstream) plan: Plan,
    pub(in crate::downstream) claim: Option<CallClaim>,
    pub(in crate::downstream) announce: Announce,
    pub(in crate::downstream) repeatable: bool,
    /// The server runs the tool as a task of its own, and in no other way.
    pub(in crate::downstream) requires_task: bool,
    /// The call must not go to the server before its turn.
    is_limited: bool,
}

/// The known facts about the server and raincheck when a call is routed.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the decision needs"
)]
pub(in crate::downstream) struct KnownOfCalls<'k> {
    pub(in crate::downstream) rules: &'k Rules,
    /// The server's own tasks are the client's business.
    pub(in crate::downstream) keeps_native_tasks: bool,
    /// A tool that the server calls read-only or idempotent may be run again.
    pub(in crate::downstream) trusts_annotations: bool,
    /// Our own tools, where the client has them.
    pub(in crate::downstream) companion: Option<&'k Companion>,
    /// The session speaks of tasks as 2025-11-25 does.
    pub(in crate::downstream) speaks_of_tasks: bool,
    /// Calls of the tool may have to wait for their turn.
    pub(in crate::downstream) is_limited: bool,
    /// `true` if the server runs the tool as a task only, according to a list that passed here.
    pub(in crate::downstream) requires_task: Option<bool>,
    /// The request names a session.
    pub(in crate::downstream) names_session: bool,
    /// The client's session at the server.
    pub(in crate::downstream) session: KnownSession,
    pub(in crate::downstream) server: KnownServer,
}

/// The state of the client's session at the server, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum KnownSession {
    NotAsked,
    /// raincheck can carry calls on the session.
    Found,
    /// raincheck knows no such session, or too many are in use.
    Unknown,
}

#[cfg(test)]
impl<'k> KnownOfCalls<'k> {
    /// A session of an older revision, at a server of which nothing is known.
    pub(in crate::downstream) fn new(rules: &'k Rules) -> Self {
        Self {
            rules,
            keeps_native_tasks: false,
            trusts_annotations: false,
            companion: None,
            speaks_of_tasks: false,
            is_limited: false,
            requires_task: Some(false),
            names_session: true,
            session: KnownSession::Found,
            server: KnownServer::default(),
        }
    }
}

/// Routes a call on a session of the server's own.
pub(in crate::downstream) fn route_call<'k>(
    request: &Request<'_>,
    by: &Requester,
    known: &KnownOfCalls<'k>,
) -> CallRoute<'k> {
    match route_task(request, by, known) {
        CallRoute::Pass => {}
        CallRoute::Answer(CallOp::Task(spec)) => return task_on_session(spec, known),
        decided @ (CallRoute::Ask(_) | CallRoute::AskSession | CallRoute::Answer(_)) => {
            return decided;
        }
    }
    if !known.speaks_of_tasks || !Wish::is_in(&request.params) {
        return plain(request, by, known).unwrap_or_else(refuse);
    }
    // A client that asks for a task which is not ours gets the server's, which no key stands for.
    if has_key(request, by) {
        return refuse(their_task_has_no_key());
    }
    CallRoute::Pass
}

fn refuse<'k>(error: RpcError) -> CallRoute<'k> {
    CallRoute::Answer(CallOp::Refuse(error))
}

fn task_on_session<'k>(spec: Box<TaskSpec>, known: &KnownOfCalls<'k>) -> CallRoute<'k> {
    // Passed on, the call would run without a task, and its key would stand for nothing.
    let must_not_pass = spec.rule.require_tasks || spec.claim.is_some();
    match known.session {
        KnownSession::NotAsked => CallRoute::AskSession,
        KnownSession::Found => CallRoute::Answer(CallOp::Task(spec)),
        KnownSession::Unknown => not_on_session(must_not_pass, known),
    }
}

fn carry_on_session<'k>(spec: Box<CarrySpec<'k>>, known: &KnownOfCalls<'k>) -> CallRoute<'k> {
    let must_not_pass = spec.claim.is_some() || spec.is_limited;
    match known.session {
        KnownSession::NotAsked if known.names_session => CallRoute::AskSession,
        KnownSession::Unknown if known.names_session => not_on_session(must_not_pass, known),
        // A server without sessions gives its clients no id: any connection will do.
        KnownSession::NotAsked | KnownSession::Found | KnownSession::Unknown => {
            CallRoute::Answer(CallOp::Carry(spec))
        }
    }
}

/// Returns the route of a call without a session: the server itself can best report that it does not know the
/// session.
fn not_on_session<'k>(must_not_pass: bool, known: &KnownOfCalls<'_>) -> CallRoute<'k> {
    if must_not_pass && known.server.speaks_http {
        CallRoute::Answer(CallOp::Busy)
    } else {
        CallRoute::Pass
    }
}

/// Routes a call as far as it is about tasks of 2025-11-25. `Pass`: it is not.
pub(in crate::downstream) fn route_task<'k>(
    request: &Request<'_>,
    by: &Requester,
    known: &KnownOfCalls<'k>,
) -> CallRoute<'k> {
    task(request, by, known).unwrap_or_else(refuse)
}

fn task<'k>(
    request: &Request<'_>,
    by: &Requester,
    known: &KnownOfCalls<'k>,
) -> Result<CallRoute<'k>, RpcError> {
    let name = request.params.get_str("name");
    let Some(name) = name.filter(|_| known.speaks_of_tasks) else {
        return Ok(CallRoute::Pass);
    };
    let rule = known.rules.for_tool(&name).0;
    let Some(wish) = Wish::of(&request.params)? else {
        if is_only_as_task(rule) {
            return Err(only_as_task());
        }
        return Ok(CallRoute::Pass);
    };
    check(&request.params)?;
    if known.server.era.is_none() {
        return Ok(CallRoute::Ask(MissingFact::Era));
    }
    if !known.server.tools.is_asked() {
        return Ok(CallRoute::Ask(MissingFact::Tools));
    }
    // A list that cannot be had says nothing.
    let tool = known.server.tools.get(&name);
    if known.keeps_native_tasks && tool.is_some_and(|tool| tool.own_task != OwnTask::Never) {
        return Ok(CallRoute::Pass);
    }
    let requires_task = tool.is_some_and(ServerTool::requires_task);
    if rule.mode == Mode::Never && !requires_task {
        return Err(never_a_task());
    }
    Ok(CallRoute::Answer(CallOp::Task(Box::new(TaskSpec {
        rule: Rule {
            retention_ms: retention_ms(wish, rule),
            ..rule.clone()
        },
        claim: claim_of_legacy(request, by, rule)?,
        repeatable: known.trusts_annotations && tool.is_some_and(|tool| tool.repeatable),
        requires_task,
    }))))
}

/// A call that asks for no task.
fn plain<'k>(
    request: &Request<'_>,
    by: &Requester,
    known: &KnownOfCalls<'k>,
) -> Result<CallRoute<'k>, RpcError> {
    let Some(name) = request.params.get_str("name") else {
        return Ok(CallRoute::Pass);
    };
    let rule = known.rules.for_tool(&name).0;
    if !request.has_id() {
        return pass(rule);
    }
    let server = &known.server;
    let Some(is_native) = is_native(&name, by, known) else {
        return Ok(CallRoute::Ask(MissingFact::Tools));
    };
    // What passes waits for no turn, and cannot be shortened.
    let is_limited = known.is_limited;
    let is_carried = is_limited || rule.result_inline.for_clients().is_some();
    let may_be_ours = is_native || is_carried || known.companion.is_some();
    if !may_be_ours && !may_claim(request, by, rule) {
        return pass(rule);
    }
    let claim = claim_of_legacy(request, by, rule)?;
    if claim.is_some() || is_carried {
        // What passes to a server that is not known yet would not be claimed, counted or shortened.
        if server.era.is_none() {
            return Ok(CallRoute::Ask(MissingFact::Era));
        }
    } else if !may_be_ours || !server.is_decided {
        return pass(rule);
    }
    // What the client knows of our tools is what was in its list.
    let companion = known.companion.filter(|it| !it.is_unknown_to(&by.name()));
    let needs_tools = companion.is_some() || claim.is_some() || is_native;
    if needs_tools && !server.tools.is_asked() {
        return Ok(CallRoute::Ask(MissingFact::Tools));
    }
    let names = companion.and_then(|companion| companion.names(server.tools.listed()));
    if let Some(names) = &names
        && let Some(tool) = names.tool(&name)
    {
        let companion = CallOp::Companion(tool, names.clone());
        return Ok(CallRoute::Answer(companion));
    }
    let plan = match &names {
        Some(_) => with_companion(rule, by.client, InputWhen::InTask),
        None if is_only_as_task(rule) => Plan::Refuse,
        None => Plan::Held,
    };
    let is_told = names.is_some() || claim.is_some() || is_native;
    let tool = server.tools.get(&name).filter(|_| is_told);
    let requires_task = tool.is_some_and(ServerTool::requires_task);
    if claim.is_none() {
        let may_pass = plan == Plan::Held && !(is_native && requires_task) && !is_carried;
        if may_pass || plan == Plan::Refuse {
            return pass(rule);
        }
    } else if plan == Plan::Refuse {
        return Err(only_as_task());
    }
    let announce = names.map_or(Announce::Task, |names| {
        Announce::Ticket(Ticket {
            names,
            client_era: Era::Legacy,
            takes_large_events: by.takes_large_events,
        })
    });
    let spec = CarrySpec {
        rule,
        plan,
        claim,
        announce,
        repeatable: known.trusts_annotations && tool.is_some_and(|tool| tool.repeatable),
        requires_task,
        is_limited,
    };
    Ok(carry_on_session(Box::new(spec), known))
}

/// Returns `true` if the server runs the tool as a task of its own only, which its client was not notified of.
/// `None`: that must be asked.
fn is_native(tool: &str, by: &Requester, known: &KnownOfCalls<'_>) -> Option<bool> {
    if known.keeps_native_tasks || !known.speaks_of_tasks {
        return Some(false);
    }
    if let Some(requires_task) = known.requires_task {
        return Some(requires_task);
    }
    if by.is_piped || !known.server.speaks_http {
        // Such a session is this process's alone: the lists that its client has passed here.
        return Some(false);
    }
    let tools = &known.server.tools;
    let requires_task = || tools.get(tool).is_some_and(ServerTool::requires_task);
    tools.is_asked().then(requires_task)
}

/// The rule holds whatever revision the session speaks: clients of revisions before 2025-11-25 cannot ask for a task.
fn pass(rule: &Rule) -> Result<CallRoute<'static>, RpcError> {
    if plan(rule, false, false) == Plan::Refuse {
        return Err(only_as_task());
    }
    Ok(CallRoute::Pass)
}

fn is_only_as_task(rule: &Rule) -> bool {
    rule.require_tasks && rule.mode != Mode::Never
}

fn check(params: &Object<'_>) -> Result<(), RpcError> {
    if params.is_ambiguous(&RESERVED) {
        return Err(RpcError::invalid_params(
            "Invalid params: ambiguous members",
        ));
    }
    if !has_arguments_or_none(params) {
        return Err(RpcError::invalid_params(
            "Invalid params: arguments must be an object",
        ));
    }
    Ok(())
}

/// Returns the time that the finished task stays: the time that was asked for, within limits.
fn retention_ms(wish: Wish, rule: &Rule) -> u64 {
    let longest = rule.retention_ms.saturating_mul(RETENTIONS_MAX);
    wish.ttl_ms.map_or(rule.retention_ms, |wanted| {
        wanted.clamp(RETENTION_MS_MIN, longest.max(RETENTION_MS_MIN))
    })
}

/// The code is the specification's (2025-11-25, Tasks, Tool-Level Negotiation).
fn only_as_task() -> RpcError {
    RpcError::new(
        code::METHOD_NOT_FOUND,
        "Method not found: this tool runs as a task only, which params.task asks for",
    )
}

fn never_a_task() -> RpcError {
    RpcError::new(
        code::METHOD_NOT_FOUND,
        "Method not found: this tool does not run as a task",
    )
}

fn their_task_has_no_key() -> RpcError {
    RpcError::invalid_params(
        "Invalid params: a task of the server's own can have no idempotency key",
    )
}

#[cfg(test)]
mod tests;
