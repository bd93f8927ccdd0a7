//! The route of a modern client's request: decided once from its content, its requester and the known facts. Pure.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::super::idempotency::claim_of;
use super::super::request::Modern;
use super::super::requester::Requester;
use super::{KnownServer, MissingFact, is_translated, list_member, names_our_result};
use crate::downstream::companion::state::Companion;
use crate::downstream::events::request::{EventOp, no_event, not_permitted, op_of_ours};
use crate::downstream::events::state::{Events, EventsFor};
use crate::mcp::error::RpcError;
use crate::mcp::params;
use crate::mcp::request::Request;
use crate::mcp::tools::Tool as ServerTool;
use crate::mcp::version::Era;
use crate::runner::Announce;
use crate::runner::claim::CallClaim;
use crate::runner::retry::read_state;
use crate::task::plan::{Plan, plan, with_companion};
use crate::task::policy::{InputWhen, Rule, Rules};
use crate::task::ticket::{CompanionNames, CompanionTool, Ticket};

/// The route of a request.
#[derive(Debug)]
pub(in crate::downstream) enum Route<'k> {
    /// The decision needs a word of the server. A call that becomes a task waits for it no longer than this, from when
    /// it came.
    Ask(MissingFact, Option<Duration>),
    Refuse(RpcError),
    /// To the server as it came.
    Pass,
    /// A call that passes, whose client is sent progress while the server is silent.
    PassWithHeartbeat,
    /// `server/discover`.
    Discover,
    /// `tasks/*`, about a task in the store.
    Task,
    /// `resources/read` of a result that raincheck keeps.
    Result,
    /// `subscriptions/listen`.
    Listen,
    /// About raincheck's own event, and no other.
    Event(EventOp, &'k Arc<Events>),
    /// One of our own tools, which have these names for this client.
    Companion(CompanionTool, CompanionNames),
    /// A list that does not pass as the server gives it.
    List(Listed, CallTerms<'k>),
    Call(CallTerms<'k>),
}

/// A list that does not pass as the server gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Listed {
    /// Our tools are in it.
    WithOurs,
    /// It is empty where the server has none.
    MaybeEmpty,
    /// It declares how large the results of tools may be.
    WithSizes,
    /// Our event is in it.
    WithEvents,
}

/// The terms on which a request is carried.
#[derive(Debug)]
pub(in crate::downstream) struct CallTerms<'k> {
    /// The server's era. `None`: a task that waits until the server reports its era.
    pub(in crate::downstream) era: Option<Era>,
    pub(in crate::downstream) rule: &'k Rule,
    pub(in crate::downstream) plan: Plan,
    /// The claim under which the call stands for calls with the same name.
    pub(in crate::downstream) claim: Option<CallClaim>,
    /// The form in which the client is notified of a task.
    pub(in crate::downstream) announce: Announce,
    /// The server calls the tool safe to repeat, and is believed.
    pub(in crate::downstream) repeatable: bool,
    /// The server runs the tool as a task of its own.
    pub(in crate::downstream) native_task: bool,
}

/// The known facts about the server and raincheck when a request is routed.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the decision needs"
)]
pub(in crate::downstream) struct Known<'k> {
    pub(in crate::downstream) rules: &'k Rules,
    /// A modern server's own tasks are the client's business.
    pub(in crate::downstream) keeps_native_tasks: bool,
    /// A tool that the server calls read-only or idempotent may be run again.
    pub(in crate::downstream) trusts_annotations: bool,
    /// Our own tools, where the client has them.
    pub(in crate::downstream) companion: Option<&'k Companion>,
    pub(in crate::downstream) server: KnownServer,
    /// The caller received the answer that the server may have everything.
    pub(in crate::downstream) had_stand_in: bool,
    /// Calls of the tool that the request names may have to wait for their turn.
    pub(in crate::downstream) is_limited: bool,
    /// The server has not answered in the time after which the call becomes a task.
    pub(in crate::downstream) is_late: bool,
    /// The store does not know the task that the request names.
    pub(in crate::downstream) is_no_task_here: bool,
    /// Which clients raincheck offers its event to.
    pub(in crate::downstream) events: EventsFor<'k>,
}

/// Routes a request of a modern client.
pub(in crate::downstream) fn route<'k>(
    modern: &Modern<'_>,
    by: &Requester,
    known: &Known<'k>,
) -> Route<'k> {
    let decided = match &*modern.request.method {
        "server/discover" => Ok(Route::Discover),
        "subscriptions/listen" => Ok(Route::Listen),
        "tools/call" => call(modern, by, known),
        "resources/read" if names_our_result(&modern.request) => Ok(Route::Result),
        method if method.starts_with("events/") => event(modern, known),
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
                return Ok(Route::Ask(MissingFact::Tools, None));
            }
            companion.names(known.server.tools.listed())
        }
        Some(_) | None => None,
    };
    if let Some(names) = &names
        && let Some(tool) = names.tool(&name)
    {
        return Ok(Route::Companion(tool, names.clone()));
    }
    let is_retry = request.params.contains("inputResponses");
    let plan = match &names {
        // The client answers by coming back.
        Some(_) => with_companion(rule, by.client, InputWhen::BeforeTask),
        None => plan(rule, meta.declares_tasks, is_retry),
    };
    if plan == Plan::Refuse {
        return Err(RpcError::tasks_required());
    }
    let claim = claim_of(modern, by, rule)?;
    let patience = patience(plan, rule).filter(|_| meta.declares_tasks);
    let era = known.server.era;
    if era.is_none() && !known.is_late {
        return Ok(Route::Ask(MissingFact::Era, patience));
    }
    let may_pass = era == Some(Era::Modern) && known.server.speaks_http && plan == Plan::Held;
    if may_pass
        && claim.is_none()
        && may_stream_past(modern, known)
        && rule.result_inline.for_clients().is_none()
    {
        let beats = by.client.heartbeat(rule).is && meta.progress_token.is_some();
        return Ok(if beats {
            Route::PassWithHeartbeat
        } else {
            Route::Pass
        });
    }
    // A task is created before the server sees the call, so what the server would refuse must be found here first.
    if !known.server.tools.is_asked() && !known.is_late {
        return Ok(Route::Ask(MissingFact::Tools, patience));
    }
    let plan = if known.is_late { NOW } else { plan };
    // Where the list cannot be had the check is left to the server.
    let tool = known.server.tools.get(&name);
    if let Some(tool) = tool {
        let arguments = request.params.get("arguments");
        params::check(tool, arguments, modern.headers).map_err(RpcError::header_mismatch)?;
    }
    let ticket = |names| Ticket {
        names,
        client_era: Era::Modern,
        takes_large_events: by.takes_large_events,
    };
    let announce = names.map_or(Announce::Task, |names| Announce::Ticket(ticket(names)));
    let requires_task = tool.is_some_and(ServerTool::requires_task);
    Ok(Route::Call(CallTerms {
        era,
        rule,
        plan,
        claim,
        announce,
        repeatable: known.trusts_annotations && tool.is_some_and(|tool| tool.repeatable),
        native_task: is_native_task(era, plan, requires_task, known),
    }))
}

/// The plan of a call whose client has waited long enough.
const NOW: Plan = Plan::Always {
    input: InputWhen::InTask,
};

/// Returns `true` if the server runs the call as a task of its own.
fn is_native_task(era: Option<Era>, plan: Plan, requires_task: bool, known: &Known<'_>) -> bool {
    match era {
        Some(Era::Legacy) => requires_task,
        // A task of ours must not become one of the server's.
        Some(Era::Modern) => known.keeps_native_tasks && !matches!(plan, Plan::Always { .. }),
        None => false,
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

/// A request about events: of ours, or of the server's.
fn event<'k>(modern: &Modern<'_>, known: &Known<'k>) -> Result<Route<'k>, RpcError> {
    match (known.events, op_of_ours(&modern.request)) {
        (EventsFor::ThisClient(events), Some(op)) => Ok(Route::Event(op, events)),
        (EventsFor::Others, Some(_)) => Err(not_permitted()),
        // The server's events, if it has any, belong to its sessions.
        (EventsFor::ThisClient(events), None) if known.server.era == Some(Era::Legacy) => {
            match &*modern.request.method {
                "events/list" => Ok(Route::Event(EventOp::List, events)),
                _ => Err(no_event()),
            }
        }
        (EventsFor::Nobody | EventsFor::Others | EventsFor::ThisClient(_), _) => {
            other(modern, known)
        }
    }
}

/// Everything else that the server answers.
fn other<'k>(modern: &Modern<'_>, known: &Known<'k>) -> Result<Route<'k>, RpcError> {
    let method = &*modern.request.method;
    let Some(era) = known.server.era else {
        return Ok(Route::Ask(MissingFact::Era, None));
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
        era: Some(era),
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
    if method == "events/list" && matches!(known.events, EventsFor::ThisClient(_)) {
        return Some(Listed::WithEvents);
    }
    if known.had_stand_in && list_member(method).is_some() {
        return Some(Listed::MaybeEmpty);
    }
    (method == "tools/list" && known.rules.sets_result_sizes()).then_some(Listed::WithSizes)
}

/// Returns `true` if a call may go to the server as it came.
fn may_stream_past(modern: &Modern<'_>, known: &Known<'_>) -> bool {
    let (request, meta) = (&modern.request, &modern.meta);
    // What speaks of tasks must not reach the server: only then the body is edited.
    let hides_tasks = meta.declares_tasks && !known.keeps_native_tasks;
    let untouched = !hides_tasks && !request.params.contains("task");
    // What streams past waits for no turn.
    untouched && !has_state_of_ours(request) && !known.is_limited
}

/// Returns `true` if the request's state has the form of ours.
pub(in crate::downstream) fn has_state_of_ours(request: &Request<'_>) -> bool {
    let state = request.params.get_str("requestState");
    state.as_deref().and_then(read_state).is_some()
}

fn tool_name<'a>(request: &Request<'a>) -> Result<Cow<'a, str>, RpcError> {
    if !params::has_arguments_or_none(&request.params) {
        return Err(RpcError::invalid_params(
            "Invalid params: arguments must be an object",
        ));
    }
    let name = request.params.get_str("name");
    name.ok_or_else(|| RpcError::invalid_params("Invalid params: name must be a string"))
}

#[cfg(test)]
mod tests;
