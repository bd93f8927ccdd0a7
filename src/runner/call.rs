//! A call as it is handed over, how its client hears of its task, and why it was not begun.

use std::time::Duration;

use serde_json::value::RawValue;

use super::turn::Full;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::task::id::Caller;
use crate::task::policy::{Plan, Rule};
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

/// How long the call may be answered before it becomes a task.
pub(super) fn grace(call: &Call) -> Duration {
    Duration::from_millis(call.rule.grace_window_ms)
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

impl From<Full> for NotBegun {
    fn from(_: Full) -> Self {
        Self::QueueFull
    }
}

/// Nothing was sent, so the client may repeat the call.
pub(super) fn not_sent(reason: Reason) -> Failure {
    Failure::new(reason, SideEffect::None)
}
