//! A call as it is handed over, how its client hears of its task, and why it was not begun.

use std::time::Duration;

use serde_json::value::RawValue;

use super::admission::QueueFull;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::task::id::Caller;
use crate::task::policy::{InputWhen, Plan, Rule};
use crate::task::state::{Digest, Task};
use crate::task::ticket::Ticket;
use crate::task::view;
use crate::upstream::Outgoing;

/// One call as the downstream hands it over.
#[derive(Debug)]
pub struct Call {
    pub caller: Caller,
    pub era: Era,
    /// Whose words the client speaks. A legacy one answers questions while it waits.
    pub face: Era,
    pub outgoing: Outgoing,
    pub rule: Rule,
    pub plan: Plan,
    /// How the client hears that its call became a task.
    pub announce: Announce,
    /// The client's progress token, where it asked for progress.
    pub progress_token: Option<Box<RawValue>>,
    /// What a retry of this call must repeat, should it be parked with a question.
    pub digest: Digest,
    /// The server calls it safe to repeat, and is believed.
    pub repeatable: bool,
    /// The caller is somebody in particular, who can have the task listed (2025-11-25, Tasks).
    pub listed: bool,
    /// Of which session its client is, where its questions are answered to any replica.
    pub session: Option<[u8; 16]>,
}

/// What is sent to the server, and under which rule: all that a call with a record needs.
#[derive(Debug)]
pub(super) struct ServerCall {
    pub(super) era: Era,
    pub(super) outgoing: Outgoing,
    pub(super) rule: Rule,
}

/// What the client of a call asked for: it counts until there is a record.
#[derive(Debug)]
pub(super) struct ClientTerms {
    pub(super) caller: Caller,
    pub(super) face: Era,
    pub(super) plan: Plan,
    pub(super) announce: Announce,
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) digest: Digest,
    pub(super) repeatable: bool,
    pub(super) listed: bool,
    pub(super) session: Option<[u8; 16]>,
}

impl Call {
    pub(super) fn split(self) -> (ServerCall, ClientTerms) {
        let server = ServerCall {
            era: self.era,
            outgoing: self.outgoing,
            rule: self.rule,
        };
        let client = ClientTerms {
            caller: self.caller,
            face: self.face,
            plan: self.plan,
            announce: self.announce,
            progress_token: self.progress_token,
            digest: self.digest,
            repeatable: self.repeatable,
            listed: self.listed,
            session: self.session,
        };
        (server, client)
    }

    /// How long the call may stay unanswered before it becomes a task; `None`: time makes no task of
    /// it.
    pub(super) fn window(&self, start_allowance: Duration) -> Option<Duration> {
        match self.plan {
            Plan::Auto { window_ms, .. } => Some(Duration::from_millis(window_ms)),
            Plan::Always {
                input: InputWhen::InTask,
            } => Some(Duration::ZERO),
            // Its questions come before its task, also where the server has to be started first.
            Plan::Always {
                input: InputWhen::BeforeTask,
            } => Some(start_allowance + grace(&self.rule)),
            Plan::Held | Plan::Refuse => None,
        }
    }
}

/// How a client hears that its call became a task.
#[derive(Debug, Clone)]
pub enum Announce {
    /// By the task's handle.
    Task,
    /// By a ticket, as a plain result: it knows no tasks.
    Ticket(Ticket),
}

/// The official Python client refuses an event of more than 1 MiB. The rest is for what is around the
/// result.
const LARGE_EVENT: usize = (1 << 20) - 4096;

impl Announce {
    /// Whether the client is better served by this than by the result as an event. A client that asked
    /// for tasks fetches a large result in any case.
    pub(super) fn is_better_than(&self, result: &RawValue) -> bool {
        let spares = match self {
            Self::Task => true,
            Self::Ticket(ticket) => !ticket.takes_large_events,
        };
        spares && result.get().len() > LARGE_EVENT
    }

    pub(super) fn text(&self, task: &Task, now_ms: u64) -> String {
        match self {
            Self::Task => view::create_result(task, now_ms),
            Self::Ticket(ticket) => ticket.issued(task, now_ms),
        }
    }
}

/// How long a call of this rule may stay unanswered before it becomes a task.
pub(super) fn grace(rule: &Rule) -> Duration {
    Duration::from_millis(rule.grace_window_ms)
}

/// Too many calls are under way.
#[derive(Debug)]
pub struct Busy;

/// Why a call was not begun. Nothing of it was stored or sent.
#[derive(Debug)]
pub enum NotBegun {
    Busy,
    QueueFull,
    /// The caller has as many tasks as it may.
    Quota,
}

impl NotBegun {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Busy => Reason::Busy,
            Self::QueueFull => Reason::QueueFull,
            Self::Quota => Reason::Quota,
        }
    }
}

impl From<Busy> for NotBegun {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<QueueFull> for NotBegun {
    fn from(_: QueueFull) -> Self {
        Self::QueueFull
    }
}

/// Nothing was sent, so the client may repeat the call.
pub(super) fn not_sent(reason: Reason) -> Failure {
    Failure::new(reason, SideEffect::None)
}
