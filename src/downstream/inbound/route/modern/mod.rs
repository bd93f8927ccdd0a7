//! The route of a modern client's request: decided once from its content, its requester and the known facts. Pure.

use std::sync::Arc;
use std::time::Duration;

use super::super::request::Modern;
use super::super::requester::Requester;
use super::call::{CallDecision, CallFacts, CallIntent, Follows, Passing, decide};
use super::{MissingFact, is_translated, list_member, names_our_result};
use crate::downstream::events::request::{EventOp, no_event, not_permitted, op_of_ours};
use crate::downstream::events::state::{Events, EventsFor};
use crate::mcp::error::RpcError;
use crate::mcp::request::Request;
use crate::mcp::version::Era;
use crate::runner::CallTerms;
use crate::runner::retry::read_state;
use crate::task::policy::InputWhen;
use crate::task::ticket::{CompanionNames, CompanionTool};

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
    List(Listed, Box<CallTerms>),
    Call(Box<CallTerms>),
}

/// A list that does not pass as the server gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Listed {
    /// Our tools are in it.
    WithOurs,
    /// It is empty where the server has none.
    MaybeEmpty,
    /// It declares how large the results of tools may be.
    ByRules,
    /// Our event is in it.
    WithEvents,
}

/// The known facts about the server and raincheck when a request is routed.
#[derive(Debug, Clone)]
pub(in crate::downstream) struct RequestFacts<'k> {
    pub(in crate::downstream) calls: CallFacts<'k>,
    /// The caller received the answer that the server may have everything.
    pub(in crate::downstream) had_stand_in: bool,
    /// The store does not know the task that the request names.
    pub(in crate::downstream) is_no_task_here: bool,
    /// Which clients raincheck offers its event to.
    pub(in crate::downstream) events: EventsFor<'k>,
}

/// Routes a request of a modern client.
pub(in crate::downstream) fn route<'k>(
    modern: &Modern<'_>,
    by: &Requester,
    facts: &RequestFacts<'k>,
) -> Route<'k> {
    let decided = match &*modern.request.method {
        "server/discover" => Ok(Route::Discover),
        "subscriptions/listen" => Ok(Route::Listen),
        "tools/call" => Ok(call(modern, by, facts)),
        "resources/read" if names_our_result(&modern.request) => Ok(Route::Result),
        method if method.starts_with("events/") => event(modern, facts),
        // A task that the store lacks may be one of the server's own, so its request goes on to the server.
        method if method.starts_with("tasks/") && !facts.is_no_task_here => Ok(Route::Task),
        _ => other(modern, facts),
    };
    decided.unwrap_or_else(Route::Refuse)
}

fn call<'k>(modern: &Modern<'_>, by: &Requester, facts: &RequestFacts<'k>) -> Route<'k> {
    let (meta, calls) = (&modern.meta, &facts.calls);
    let intent = CallIntent {
        request: &modern.request,
        key: meta.idempotency_key,
        follows: if meta.declares_tasks {
            Follows::Declared
        } else {
            Follows::Nothing
        },
        passing: if passes_unedited(modern, calls) {
            Passing::AsItCame
        } else {
            Passing::Never
        },
        // The client answers by coming back.
        input: InputWhen::BeforeTask,
        headers: Some(modern.headers),
    };
    match decide(&intent, by, calls) {
        CallDecision::Ask(fact, patience) => Route::Ask(fact, patience),
        CallDecision::Pass => {
            let name = modern.request.name().unwrap_or_default();
            let beats = by.client.heartbeat(calls.rules.for_tool(&name).0).value;
            if beats && meta.progress_token.is_some() {
                Route::PassWithHeartbeat
            } else {
                Route::Pass
            }
        }
        CallDecision::Refuse(error) => Route::Refuse(error),
        CallDecision::Companion(tool, names) => Route::Companion(tool, names),
        CallDecision::Run(terms) => Route::Call(terms),
    }
}

/// A request about events: of ours, or of the server's.
fn event<'k>(modern: &Modern<'_>, facts: &RequestFacts<'k>) -> Result<Route<'k>, RpcError> {
    match (facts.events, op_of_ours(&modern.request)) {
        (EventsFor::ThisClient(events), Some(op)) => Ok(Route::Event(op, events)),
        (EventsFor::Others, Some(_)) => Err(not_permitted()),
        // The server's events, if it has any, belong to its sessions.
        (EventsFor::ThisClient(events), None) if facts.calls.server.era == Some(Era::Legacy) => {
            match &*modern.request.method {
                "events/list" => Ok(Route::Event(EventOp::List, events)),
                _ => Err(no_event()),
            }
        }
        (EventsFor::Nobody | EventsFor::Others | EventsFor::ThisClient(_), _) => {
            other(modern, facts)
        }
    }
}

/// Everything else that the server answers.
fn other<'k>(modern: &Modern<'_>, facts: &RequestFacts<'k>) -> Result<Route<'k>, RpcError> {
    let method = &*modern.request.method;
    let Some(era) = facts.calls.server.era else {
        return Ok(Route::Ask(MissingFact::Era, None));
    };
    let listed = listed(modern, facts);
    let is_spoken = match era {
        Era::Legacy => is_translated(method),
        Era::Modern if facts.calls.server.speaks_http && listed.is_none() => {
            return Ok(Route::Pass);
        }
        // A program that speaks both eras would keep to the other one, for everybody on it.
        Era::Modern => facts.calls.server.speaks_http || method != "initialize",
    };
    if !is_spoken {
        return Err(RpcError::method_not_found());
    }
    let terms = Box::new(CallTerms {
        native_task: facts.calls.keeps_native_tasks && era == Era::Modern,
        ..CallTerms::held(Some(era), facts.calls.rules.for_tool("").0)
    });
    Ok(match listed {
        Some(listed) => Route::List(listed, terms),
        None => Route::Call(terms),
    })
}

fn listed(modern: &Modern<'_>, facts: &RequestFacts<'_>) -> Option<Listed> {
    let method = &*modern.request.method;
    if method == "tools/list" && facts.calls.companion.is_some() && !modern.meta.declares_tasks {
        return Some(Listed::WithOurs);
    }
    if method == "events/list" && matches!(facts.events, EventsFor::ThisClient(_)) {
        return Some(Listed::WithEvents);
    }
    if facts.had_stand_in && list_member(method).is_some() {
        return Some(Listed::MaybeEmpty);
    }
    (method == "tools/list" && facts.calls.rules.edits_list()).then_some(Listed::ByRules)
}

/// Returns `true` if nothing in a call is for raincheck.
fn passes_unedited(modern: &Modern<'_>, facts: &CallFacts<'_>) -> bool {
    let (request, meta) = (&modern.request, &modern.meta);
    // What speaks of tasks must not reach the server: only then the body is edited.
    let hides_tasks = meta.declares_tasks && !facts.keeps_native_tasks;
    !hides_tasks && !request.params.contains("task") && !has_state_of_ours(request)
}

/// Returns `true` if the request's state has the form of ours.
pub(in crate::downstream) fn has_state_of_ours(request: &Request<'_>) -> bool {
    let state = request.params.get_str("requestState");
    state.as_deref().and_then(read_state).is_some()
}

#[cfg(test)]
mod tests;
