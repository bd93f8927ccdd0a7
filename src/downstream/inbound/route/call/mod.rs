//! The decision about a `tools/call`, whatever front it came through: made once, from the call, its requester and the
//! known facts. Pure.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;
use uuid::Uuid;

use super::super::idempotency::{claim_of, has_key};
use super::super::requester::Requester;
use super::{KnownServer, KnownTools, MissingFact, paused};
use crate::downstream::companion::state::Companion;
use crate::jobs::job_call::JobCall;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect, code};
use crate::mcp::input::is_retry;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::params;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::Wish;
use crate::mcp::tools::{OwnTask, Tool as ServerTool};
use crate::mcp::version::Era;
use crate::runner::claim::CallClaim;
use crate::runner::{Announce, CallTerms};
use crate::task::plan::{Plan, plan, with_companion};
use crate::task::policy::{InputWhen, Mode, Rule, Rules};
use crate::task::ticket::{CompanionNames, CompanionTool, Ticket};

/// The store keeps a finished task at least this long, even if the client asks for a shorter `ttl`.
const RETENTION_MS_MIN: u64 = 1_000;

/// A finished task stays at most so many times as long as the operator's own `retention`.
const RETENTIONS_MAX: u64 = 24;

/// Of two members of one name, two readers could take different ones.
const RESERVED: [&str; 4] = ["_meta", "name", "arguments", "task"];

/// The plan of a call that is a task from the start, and of a call whose client has waited long enough.
const NOW: Plan = Plan::Always {
    input: InputWhen::InTask,
};

/// A `tools/call`, as its front read it.
#[derive(Debug)]
pub(in crate::downstream) struct CallIntent<'r, 'a> {
    pub(in crate::downstream) request: &'r Request<'a>,
    /// The idempotency key in `_meta`, valid or not.
    pub(in crate::downstream) key: Option<&'a RawValue>,
    pub(in crate::downstream) follows: Follows,
    pub(in crate::downstream) passing: Passing,
    /// The questions that come before a ticket: asked then, or in the task.
    pub(in crate::downstream) input: InputWhen,
    /// The headers of a modern request, which repeat some arguments.
    pub(in crate::downstream) headers: Option<&'r HeaderMap>,
}

/// The client's way to follow a task.
#[derive(Debug, Clone, Copy)]
pub(in crate::downstream) enum Follows {
    /// It waits for the answer, or uses the companion tools.
    Nothing,
    /// It declares Tasks with the request: raincheck decides whether there is one.
    Declared,
    /// It asks for a task of this call, as revision 2025-11-25 does.
    Asked(Wish),
}

impl Follows {
    /// Reads the wish for a task of a legacy client. `speaks_of_tasks`: its session does.
    pub(in crate::downstream) fn of_legacy(
        request: &Request<'_>,
        speaks_of_tasks: bool,
    ) -> Result<Self, RpcError> {
        let wish = if speaks_of_tasks {
            Wish::of(&request.params)?
        } else {
            None
        };
        Ok(wish.map_or(Self::Nothing, Self::Asked))
    }
}

/// The way a call can reach the server without raincheck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Passing {
    /// As it came, to a modern server.
    AsItCame,
    /// On the client's own session at the server.
    OnSession,
    /// In no way: only raincheck can send the call.
    Never,
}

/// The known facts about the server and raincheck when a call is decided.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the decision needs"
)]
pub(in crate::downstream) struct CallFacts<'k> {
    pub(in crate::downstream) rules: &'k Rules,
    /// The server's own tasks are the client's business.
    pub(in crate::downstream) keeps_native_tasks: bool,
    /// A tool that the server calls read-only or idempotent may be run again.
    pub(in crate::downstream) trusts_annotations: bool,
    /// Our own tools, where the client has them.
    pub(in crate::downstream) companion: Option<&'k Companion>,
    /// Calls of the tool may have to wait for their turn.
    pub(in crate::downstream) is_limited: bool,
    /// `true` if the server runs the tool as a task of its own only, and the client was not notified of that. `None`:
    /// the list of tools shows it.
    pub(in crate::downstream) requires_task: Option<bool>,
    /// The server has not answered in the time after which the call becomes a task.
    pub(in crate::downstream) is_late: bool,
    pub(in crate::downstream) server: KnownServer,
    /// The client gave the same call up, and this one collects it.
    pub(in crate::downstream) given_up: Option<CallClaim>,
    /// The time at which the call is answered, because its client's clock ends shortly after that. `None`: the clock is not
    /// known.
    pub(in crate::downstream) answer_at: Option<Instant>,
}

#[cfg(test)]
impl<'k> CallFacts<'k> {
    /// The facts where nothing is set and nothing is known of the server.
    pub(in crate::downstream) fn new(rules: &'k Rules) -> Self {
        Self {
            rules,
            keeps_native_tasks: false,
            trusts_annotations: false,
            companion: None,
            is_limited: false,
            requires_task: Some(false),
            is_late: false,
            server: KnownServer::default(),
            given_up: None,
            answer_at: None,
        }
    }
}

/// The decision about a call.
#[derive(Debug)]
pub(in crate::downstream) enum CallDecision {
    /// The decision needs a word of the server. A call that becomes a task waits for it no longer than this, from when
    /// it came.
    Ask(MissingFact, Option<Duration>),
    /// The call goes to the server without raincheck.
    Pass,
    Refuse(RpcError),
    /// One of our own tools, which have these names for this client.
    Companion(CompanionTool, CompanionNames),
    /// raincheck runs the call.
    Run(Box<CallTerms>),
}

/// Decides about a call.
pub(in crate::downstream) fn decide(
    intent: &CallIntent<'_, '_>,
    by: &Requester,
    facts: &CallFacts<'_>,
) -> CallDecision {
    let on_session = intent.passing == Passing::OnSession;
    let decided = match intent.request.params.get_str("name") {
        // The server answers on its own session.
        None if on_session => Ok(CallDecision::Pass),
        None => Err(RpcError::invalid_params(
            "Invalid params: name must be a string",
        )),
        Some(name) => match intent.follows {
            Follows::Asked(wish) => task(&name, wish, intent, by, facts),
            Follows::Nothing | Follows::Declared => call(&name, intent, by, facts),
        },
    };
    decided.unwrap_or_else(CallDecision::Refuse)
}

/// Decides about a call of which the client asks for a task.
fn task(
    name: &str,
    wish: Wish,
    intent: &CallIntent<'_, '_>,
    by: &Requester,
    facts: &CallFacts<'_>,
) -> Result<CallDecision, RpcError> {
    let (request, server) = (intent.request, &facts.server);
    paused::check(name, request, has_key(intent.key, by), facts.rules)?;
    if request.params.is_ambiguous(&RESERVED) {
        return Err(RpcError::invalid_params(
            "Invalid params: ambiguous members",
        ));
    }
    check_arguments(request)?;
    if server.era.is_none() {
        return Ok(CallDecision::Ask(MissingFact::Era, None));
    }
    if !server.tools.is_asked() {
        return Ok(CallDecision::Ask(MissingFact::Tools, None));
    }
    let tool = server.tools.get(name);
    let is_theirs = tool.is_some_and(|tool| tool.own_task != OwnTask::Never);
    if is_theirs && facts.keeps_native_tasks && intent.passing == Passing::OnSession {
        // No key stands for a task of the server's own.
        if has_key(intent.key, by) {
            return Err(their_task_has_no_key());
        }
        // No queue of ours takes a task of the server's own.
        return match facts.rules.pauses().of(name) {
            Some(pause) => Err(paused::refusal(name, pause)),
            None => Ok(CallDecision::Pass),
        };
    }
    let job = job(name, request, facts).flatten();
    let rule = facts.rules.for_tool(name).0;
    // A tool that the server runs only as a task would have no other way to be called.
    if rule.mode == Mode::Never && !tool.is_some_and(ServerTool::requires_task) {
        return Err(never_a_task());
    }
    let claim = claim_of(request, intent.key, by, rule)?;
    let mut terms = terms(name, rule, NOW, intent, by, facts);
    terms.claim = claim;
    terms.job = job;
    keep_as_wished(&mut terms, wish);
    Ok(CallDecision::Run(Box::new(terms)))
}

/// Decides about a call of which raincheck may make a task.
fn call(
    name: &str,
    intent: &CallIntent<'_, '_>,
    by: &Requester,
    facts: &CallFacts<'_>,
) -> Result<CallDecision, RpcError> {
    let (request, server) = (intent.request, &facts.server);
    let on_session = intent.passing == Passing::OnSession;
    if !on_session {
        check_arguments(request)?;
    }
    let rule = facts.rules.for_tool(name).0;
    let declares_tasks = matches!(intent.follows, Follows::Declared);
    // A message without an answer passes, and so does a call that only a ticket would need raincheck for, until it is
    // decided how the server is spoken to.
    let passes_by = on_session && !(server.is_decided && request.has_id());
    // A client that declares tasks follows them itself.
    let companion = facts.companion.filter(|_| !declares_tasks && !passes_by);
    if companion.is_some() && !server.tools.is_asked() {
        return Ok(CallDecision::Ask(MissingFact::Tools, None));
    }
    let names = companion.and_then(|companion| companion.names(server.tools.listed()));
    if let Some(names) = &names
        && let Some(tool) = names.tool(name)
    {
        return Ok(CallDecision::Companion(tool, names.clone()));
    }
    let plan = match &names {
        Some(_) => with_companion(rule, by.client, intent.input),
        None => plan(
            rule,
            declares_tasks,
            request.params.contains("inputResponses"),
        ),
    };
    if plan == Plan::Refuse {
        return Err(only_as_task(by.era));
    }
    if on_session && !request.has_id() {
        return Ok(CallDecision::Pass);
    }
    let claim = claim_of(request, intent.key, by, rule)?.or(facts.given_up);
    paused::check(name, request, claim.is_some(), facts.rules)?;
    if facts.rules.jobs().may_start(name) && matches!(server.tools, KnownTools::Unavailable) {
        return Err(unlisted());
    }
    let known = (is_native(name, by, facts), job(name, request, facts));
    let (Some(is_native), Some(job)) = known else {
        return Ok(CallDecision::Ask(MissingFact::Tools, None));
    };
    let answer_at = answer_at(request, rule, facts);
    let needs_us = claim.is_some() || answer_at.is_some() || job.is_some();
    if !must_run(rule, facts, plan, needs_us) && is_open(intent.passing, server, is_native) {
        return Ok(CallDecision::Pass);
    }
    let patience = patience(plan, rule).filter(|_| declares_tasks);
    if server.era.is_none() && !facts.is_late {
        return Ok(CallDecision::Ask(MissingFact::Era, patience));
    }
    // A task is created before the server sees the call, so what the server would refuse must be found here first.
    let needs_tools = intent.headers.is_some() || claim.is_some();
    if needs_tools && !server.tools.is_asked() && !facts.is_late {
        return Ok(CallDecision::Ask(MissingFact::Tools, patience));
    }
    // Where the list cannot be had the check is left to the server.
    if let (Some(tool), Some(headers)) = (server.tools.get(name), intent.headers) {
        let arguments = request.params.get("arguments");
        params::check(tool, arguments, headers).map_err(RpcError::header_mismatch)?;
    }
    let ticket = names.map(|names| Ticket {
        names,
        client_era: by.era,
        takes_large_events: by.takes_large_events,
    });
    let plan = if facts.is_late { NOW } else { plan };
    let mut terms = terms(name, rule, plan, intent, by, facts);
    terms.claim = claim;
    terms.job = job;
    terms.answer_at = answer_at;
    terms.announce = ticket.map_or(Announce::Task, Announce::Ticket);
    Ok(CallDecision::Run(Box::new(terms)))
}

/// Returns the rule by which the call starts a job, with what the server lists of its tools; or else that it starts none, or that
/// the server lacks a tool of the rule. `None`: the list must be asked for.
#[expect(clippy::option_option, reason = "not known, and known to be none")]
fn job(name: &str, request: &Request<'_>, facts: &CallFacts<'_>) -> Option<Option<Arc<JobCall>>> {
    let jobs = facts.rules.jobs();
    if !jobs.may_start(name) {
        return Some(None);
    }
    let tools = &facts.server.tools;
    if !tools.is_asked() {
        return None;
    }
    let arguments = request.params.get("arguments");
    let arguments = arguments.and_then(|it| serde_json::from_str(it.get()).ok());
    let Some(rule) = jobs.rule(name, arguments.as_ref()) else {
        return Some(None);
    };
    // A legacy server's own task is followed in its own way.
    if tools.get(name).is_some_and(ServerTool::requires_task) {
        return Some(None);
    }
    let job = JobCall::of(rule, name, |tool| tools.get(tool));
    Some(match job {
        Ok(job) => Some(Arc::new(job.with_key(|| Uuid::new_v4().to_string()))),
        Err(why) => {
            warn!(tool = name, error = %why, "a rule of [[jobs]] is off");
            None
        }
    })
}

/// Returns the time at which the client is answered, because its clock ends shortly after that. `None`: the same call cannot
/// collect the call, or progress may start the clock anew.
fn answer_at(request: &Request<'_>, rule: &Rule, facts: &CallFacts<'_>) -> Option<Instant> {
    let answer_at = facts.answer_at?;
    let meta = request.params.get_object("_meta");
    let asks_for_progress = meta.is_some_and(|meta| meta.contains(PROGRESS_TOKEN));
    let can_be_left =
        rule.give_up_window_ms.is_some() && !asks_for_progress && !is_retry(&request.params);
    can_be_left.then_some(answer_at)
}

/// Returns `true` if raincheck must run the call. A call that passes waits for no turn, has no claim, gets no answer but the
/// server's, its result cannot be shortened, and no job of it is followed.
fn must_run(rule: &Rule, facts: &CallFacts<'_>, plan: Plan, needs_us: bool) -> bool {
    plan != Plan::Held || needs_us || facts.is_limited || rule.result_inline.for_clients().is_some()
}

/// Returns the terms of a call without a claim, whose client is notified of the task by the task itself.
fn terms(
    name: &str,
    rule: &Arc<Rule>,
    plan: Plan,
    intent: &CallIntent<'_, '_>,
    by: &Requester,
    facts: &CallFacts<'_>,
) -> CallTerms {
    let tool = facts.server.tools.get(name);
    let era = match intent.passing {
        // The session of a dual server's is of the client's era.
        Passing::OnSession => Some(Era::Legacy),
        Passing::AsItCame | Passing::Never => facts.server.era,
    };
    let native_task = match era {
        Some(Era::Legacy) => tool.is_some_and(ServerTool::requires_task),
        // A task of ours must not become one of the server's.
        Some(Era::Modern) => facts.keeps_native_tasks && by.era == Era::Modern && !is_task(plan),
        None => false,
    };
    CallTerms {
        plan,
        repeatable: facts.trusts_annotations && tool.is_some_and(|tool| tool.repeats.is_some()),
        native_task,
        ..CallTerms::held(era, rule)
    }
}

fn is_task(plan: Plan) -> bool {
    matches!(plan, Plan::Always { .. })
}

/// Returns `true` if the call may go to the server without raincheck, if nothing in it is ours.
fn is_open(passing: Passing, server: &KnownServer, is_native: bool) -> bool {
    match passing {
        Passing::AsItCame => server.era == Some(Era::Modern) && server.speaks_http,
        Passing::OnSession => !is_native,
        Passing::Never => false,
    }
}

/// Returns the time that a call that becomes a task waits for the first response of the server.
fn patience(plan: Plan, rule: &Rule) -> Option<Duration> {
    match plan {
        Plan::Auto { window_ms, .. } => Some(Duration::from_millis(window_ms)),
        Plan::Always { .. } => Some(Duration::from_millis(rule.grace_window_ms)),
        Plan::Held | Plan::Refuse => None,
    }
}

/// Returns `true` if the server runs the tool as a task of its own only, which its client was not notified of.
/// `None`: that must be asked.
fn is_native(tool: &str, by: &Requester, facts: &CallFacts<'_>) -> Option<bool> {
    let tools = &facts.server.tools;
    let requires_task = || tools.get(tool).is_some_and(ServerTool::requires_task);
    match facts.requires_task {
        Some(false) => Some(false),
        // The session of such a client is this process's alone: the lists that its client has passed here.
        None if by.is_piped || !facts.server.speaks_http => Some(false),
        Some(true) | None => tools.is_asked().then(requires_task),
    }
}

fn check_arguments(request: &Request<'_>) -> Result<(), RpcError> {
    if params::has_arguments_or_none(&request.params) {
        return Ok(());
    }
    Err(RpcError::invalid_params(
        "Invalid params: arguments must be an object",
    ))
}

/// Keeps the finished task for the time that was asked for, within limits.
fn keep_as_wished(terms: &mut CallTerms, wish: Wish) {
    let longest = terms.rule.retention_ms.saturating_mul(RETENTIONS_MAX);
    if let Some(wanted) = wish.ttl_ms {
        // `clamp` panics where its bounds cross, and the operator's retention may be below the minimum.
        let kept = wanted.clamp(RETENTION_MS_MIN, longest.max(RETENTION_MS_MIN));
        Arc::make_mut(&mut terms.rule).retention_ms = kept;
    }
}

/// A job that is started now could not be followed.
fn unlisted() -> RpcError {
    Failure::new(Reason::UpstreamUnreachable, SideEffect::None).to_error()
}

/// The code for a legacy client is the specification's (2025-11-25, Tasks, Tool-Level Negotiation).
fn only_as_task(client: Era) -> RpcError {
    match client {
        Era::Modern => RpcError::tasks_required(),
        Era::Legacy => RpcError::new(
            code::METHOD_NOT_FOUND,
            "Method not found: this tool runs as a task only, which params.task asks for",
        ),
    }
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
