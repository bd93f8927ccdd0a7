//! A call as the downstream hands it over, how its client hears of its task, and why it was not begun.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::admission::QueueFull;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::task::id::{Caller, TaskId};
use crate::task::plan::Plan;
use crate::task::policy::Rule;
use crate::task::ticket::Ticket;
use crate::telemetry::traces::RequestSpan;
use crate::upstream::UpstreamRequest;

/// One call as the downstream hands it over.
#[derive(Debug)]
pub struct CallSpec {
    pub caller: Caller,
    /// The name that operators know the caller by.
    pub label: Option<Arc<str>>,
    /// `None`: the server has not told its era yet. The call waits until it has.
    pub era: Option<Era>,
    /// The era of the client. A legacy client answers questions while it waits.
    pub client_era: Era,
    pub outgoing: UpstreamRequest,
    pub rule: Rule,
    pub plan: Plan,
    /// How the client hears that its call became a task.
    pub announce: Announce,
    /// The client's progress token, if it asked for progress.
    pub progress_token: Option<Box<RawValue>>,
    /// Whether the server calls the tool safe to repeat, and the operator trusts it.
    pub repeatable: bool,
    /// Whose list may name the task: the caller's, where it is known well enough, or, for a call that may become a
    /// ticket, that of its session.
    pub listed: Option<Caller>,
    /// The session of the client, if any replica takes the answers to its questions.
    pub session: Option<[u8; 16]>,
    /// The caller's tasks that the request is about.
    pub related: Vec<TaskId>,
    /// The span of the client's request, where its trace is recorded.
    pub span: Option<Arc<RequestSpan>>,
}

/// What is sent to the server, and under which rule: all that a call with a record needs.
#[derive(Debug)]
pub(super) struct ServerCall {
    /// Legacy while it is not known, which is before anything is sent.
    pub(super) era: Era,
    pub(super) outgoing: UpstreamRequest,
    pub(super) rule: Rule,
}

/// What is known of a call beside its request and what its client waits for: it counts until there is a record.
#[derive(Debug)]
pub(super) struct CallFacts {
    pub(super) caller: Caller,
    pub(super) label: Option<Arc<str>>,
    pub(super) began: Instant,
    pub(super) repeatable: bool,
    pub(super) listed: Option<Caller>,
    /// Whether the client hears of the task by a ticket.
    pub(super) by_ticket: bool,
    pub(super) session: Option<[u8; 16]>,
    pub(super) related: Vec<TaskId>,
    pub(super) span: Option<Arc<RequestSpan>>,
}

impl CallSpec {
    pub(super) fn split(self) -> (ServerCall, CallFacts) {
        let outgoing = match &self.span {
            Some(span) => self.outgoing.traced(&span.to_server()),
            None => self.outgoing,
        };
        let server = ServerCall {
            era: self.era.unwrap_or(Era::Legacy),
            outgoing,
            rule: self.rule,
        };
        let facts = CallFacts {
            caller: self.caller,
            label: self.label,
            began: Instant::now(),
            repeatable: self.repeatable,
            listed: self.listed,
            by_ticket: matches!(self.announce, Announce::Ticket(_)),
            session: self.session,
            related: self.related,
            span: self.span,
        };
        (server, facts)
    }
}

/// How a client hears that its call became a task.
#[derive(Debug, Clone)]
pub enum Announce {
    /// By the task's id: `CreateTaskResult`.
    Task,
    /// By a ticket in a plain result: the client does not know Tasks.
    Ticket(Ticket),
}

/// The longest result that fits into an event: the official Python client refuses an event of more than
/// 1 MiB, and the envelope takes a part of that.
const LARGE_EVENT: usize = (1 << 20) - 4096;

impl Announce {
    /// Whether the announcement serves the client better than the result as an event. A client that asked
    /// for tasks fetches a large result in any case.
    pub(super) fn is_better_than(&self, result: &RawValue) -> bool {
        let spares = match self {
            Self::Task => true,
            Self::Ticket(ticket) => !ticket.takes_large_events,
        };
        spares && result.get().len() > LARGE_EVENT
    }
}

/// How long a call of this rule may stay unanswered before it becomes a task.
pub(super) fn grace(rule: &Rule) -> Duration {
    Duration::from_millis(rule.grace_window_ms)
}

/// Too many calls are under way.
#[derive(Debug)]
pub struct Busy;

/// Why a call was not begun. Nothing of the call was stored or sent.
#[derive(Debug)]
pub enum NotAdmitted {
    Busy,
    QueueFull,
    /// The caller has as many tasks as it may.
    Quota,
}

impl NotAdmitted {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Busy => Reason::Busy,
            Self::QueueFull => Reason::QueueFull,
            Self::Quota => Reason::Quota,
        }
    }
}

impl From<Busy> for NotAdmitted {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<QueueFull> for NotAdmitted {
    fn from(_: QueueFull) -> Self {
        Self::QueueFull
    }
}

/// The failure of a call that was not sent: the client may repeat it.
pub(super) fn not_sent(reason: Reason) -> Failure {
    Failure::new(reason, SideEffect::None)
}
