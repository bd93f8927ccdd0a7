//! The terms on which one client waits for a call: when and how it is notified of a task, and how it is asked. Pure.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::call::{Announce, CallSpec, grace};
use super::super::client_note::ClientNote;
use crate::mcp::version::Era;
use crate::task::plan::Plan;
use crate::task::policy::InputWhen;
use crate::task::ticket::Ticket;

/// The time at which a client is notified of a task whose call is not answered sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum TaskWhen {
    /// Before anything is sent.
    AtOnce,
    /// This long after the client began to wait.
    After(Duration),
    /// This long after the server has the request, so that the server's questions come before the task even if the
    /// server has to be started first.
    AfterSent {
        grace: Duration,
        start_allowance: Duration,
    },
}

impl TaskWhen {
    /// The longest time from when the client began to wait.
    pub(in crate::runner) fn latest(self) -> Duration {
        match self {
            Self::AtOnce => Duration::ZERO,
            Self::After(window) => window,
            Self::AfterSent {
                grace,
                start_allowance,
            } => start_allowance + grace,
        }
    }
}

/// The terms on which one client waits.
#[derive(Debug)]
pub(in crate::runner) struct WaitTerms {
    /// The time at which the client is notified of a task. `None`: the client receives the end or the next question,
    /// and no task.
    pub(in crate::runner) when: Option<TaskWhen>,
    /// The form in which the client is notified of a task.
    pub(in crate::runner) announce: Announce,
    /// Determines whether the client is asked before it is notified of a task.
    pub(in crate::runner) input: InputWhen,
    /// The time at which a client that gets no task is told that its call is still running.
    pub(in crate::runner) answer_at: Option<Instant>,
    /// A legacy client is asked while it waits.
    pub(in crate::runner) era: Era,
    pub(in crate::runner) progress_token: Option<Box<RawValue>>,
    /// The note of the client's front.
    pub(in crate::runner) note: Option<ClientNote>,
}

impl WaitTerms {
    /// For the client of this call.
    pub(in crate::runner) fn of(call: &CallSpec, start_allowance: Duration) -> Self {
        let answer_at = call.terms.answer_at;
        let (when, input) = match call.terms.plan {
            Plan::Held | Plan::Refuse => (None, InputWhen::BeforeTask),
            Plan::Auto { window_ms, input } => {
                let window = Duration::from_millis(window_ms);
                let left = answer_at.map(|at| at.saturating_duration_since(Instant::now()));
                let window = left.map_or(window, |left| window.min(left));
                (Some(TaskWhen::After(window)), input)
            }
            Plan::Always { input } => {
                let when = match input {
                    // The questions are part of the task, so nothing has to come before it.
                    InputWhen::InTask => TaskWhen::AtOnce,
                    // Questions go to the client before there is a task, so the server gets time to ask them.
                    InputWhen::BeforeTask => TaskWhen::AfterSent {
                        grace: grace(&call.terms.rule),
                        start_allowance,
                    },
                };
                (Some(when), input)
            }
        };
        Self {
            when,
            announce: call.terms.announce.clone(),
            input,
            answer_at: answer_at.filter(|_| when.is_none()),
            era: call.client.era,
            progress_token: call.progress_token.clone(),
            note: call.client.note.clone(),
        }
    }

    /// Returns the terms for a client that receives the end or the next question, and no task.
    pub(in crate::runner) fn held() -> Self {
        Self {
            when: None,
            announce: Announce::Task,
            input: InputWhen::BeforeTask,
            answer_at: None,
            era: Era::Modern,
            progress_token: None,
            note: None,
        }
    }

    /// For a client that waits for `patience`, and then gets a ticket.
    pub(in crate::runner) fn by_ticket(patience: Duration, ticket: Ticket) -> Self {
        Self {
            when: Some(TaskWhen::After(patience)),
            announce: Announce::Ticket(ticket),
            ..Self::held()
        }
    }

    /// Returns `true` if the record of the call may show from the start that its client was notified of it.
    pub(in crate::runner) fn are_a_task_at_once(&self) -> bool {
        let is_at_once = self.when.is_some_and(|when| when.latest().is_zero());
        is_at_once && matches!(self.announce, Announce::Task)
    }
}
