//! A call for the runner, the form in which its client is notified of a task, and the reasons why a call is not begun.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::admission::NotAdmitted;
use super::call_claim::CallClaim;
use super::client_note::ClientNote;
use super::same_calls::RunningCall;
use crate::jobs::job_call::JobCall;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::meta::without_idempotency_key;
use crate::mcp::version::Era;
use crate::task::clocks::ClockName;
use crate::task::id::{Caller, TaskId};
use crate::task::pauses::Pause;
use crate::task::plan::Plan;
use crate::task::policy::Rule;
use crate::task::ticket::Ticket;
use crate::telemetry::traces::RequestSpan;
use crate::upstream::UpstreamRequest;

/// A call for the runner: its client, its request to the server, and the terms on which it runs.
#[derive(Debug)]
pub struct CallSpec {
    pub client: CallClient,
    pub outgoing: UpstreamRequest,
    pub terms: CallTerms,
    /// The client's progress token, if it asked for progress.
    pub progress_token: Option<Box<RawValue>>,
}

/// The client of a call.
#[derive(Debug, Clone)]
pub struct CallClient {
    pub caller: Caller,
    /// The name that operators know the caller by.
    pub label: Option<Arc<str>>,
    /// A legacy client answers questions while it waits.
    pub era: Era,
    /// The list that may name the task: the caller's, where it is known well enough, or, for a call that may become a
    /// ticket, that of its session.
    pub list_key: Option<Caller>,
    /// The session, if any replica takes the client's answers to questions.
    pub session: Option<[u8; 16]>,
    /// The name under which the client may collect the call, should it give it up. `None`: raincheck cannot distinguish the
    /// client from other clients.
    pub gives_up_as: Option<[u8; 16]>,
    /// A hash of the client's description of itself, 0 if it does not describe itself with each request.
    pub program: u64,
    /// The note of the client's front, if it has something to note.
    pub note: Option<ClientNote>,
    /// The call of a modern client in the table of the calls that run. Kept until the call has a record, or has ended.
    pub running: Option<RunningCall>,
    /// The caller's tasks that the request is about.
    pub related: Vec<TaskId>,
    /// The span of the client's request, where its trace is recorded.
    pub span: Option<Arc<RequestSpan>>,
}

impl CallClient {
    /// Returns the clock that the client has for calls of this tool. `None`: raincheck cannot distinguish the client from others.
    pub fn clock_of(&self, tool: &str) -> Option<ClockName> {
        Some(ClockName::of(&self.gives_up_as?, self.program, tool))
    }
}

/// The terms on which a call runs.
#[derive(Debug, Clone)]
pub struct CallTerms {
    /// The server's era. `None`: a task that waits until the server reports its era.
    pub era: Option<Era>,
    pub rule: Arc<Rule>,
    pub plan: Plan,
    /// The claim under which other requests join the call.
    pub claim: Option<CallClaim>,
    /// The form in which the client is notified of a task.
    pub announce: Announce,
    /// The time at which the client must have an answer, because its clock ends shortly after that. `None`: it has no clock, as
    /// far as is known.
    pub answer_at: Option<Instant>,
    /// The server calls the tool safe to repeat, and is believed.
    pub repeatable: bool,
    /// The server runs the tool as a task of its own.
    pub native_task: bool,
    /// The call may start a job, which is followed to its end.
    pub job: Option<Arc<JobCall>>,
    /// The call passed before: nothing of its request is known.
    pub has_passed: bool,
}

impl CallTerms {
    /// The terms of a request whose client waits for the answer.
    pub fn held(era: Option<Era>, rule: &Arc<Rule>) -> Self {
        Self {
            era,
            rule: Arc::clone(rule),
            plan: Plan::Held,
            claim: None,
            announce: Announce::Task,
            answer_at: None,
            repeatable: false,
            native_task: false,
            job: None,
            has_passed: false,
        }
    }
}

/// The request to the server and its rule: all that a call with a record needs.
#[derive(Debug)]
pub(super) struct ServerCall {
    /// Legacy while it is not known, which is before anything is sent.
    pub(super) era: Era,
    /// Shared with the exchange that carries it, for as long as the call runs.
    pub(super) outgoing: Arc<UpstreamRequest>,
    pub(super) rule: Arc<Rule>,
}

/// The origin of a call, which is needed until there is a record.
#[derive(Debug)]
pub(super) struct CallOrigin {
    pub(super) client: CallClient,
    pub(super) began: Instant,
    pub(super) repeatable: bool,
    /// The client is notified of the task by a ticket.
    pub(super) by_ticket: bool,
    /// The claim by which the same call collects a call that passed, whose request is not known any more.
    pub(super) collected_by: Option<CallClaim>,
}

impl CallSpec {
    /// A call of this client on these terms.
    pub fn of(
        client: CallClient,
        terms: CallTerms,
        mut outgoing: UpstreamRequest,
        progress_token: Option<&RawValue>,
    ) -> Self {
        outgoing.answer_patience = terms.rule.input_timeout_ms.map(Duration::from_millis);
        outgoing.native_task = terms.native_task;
        outgoing.job.clone_from(&terms.job);
        if terms.claim.is_some() {
            // Others may join the call, and ask for progress.
            outgoing.wants_progress = true;
            // The key is for raincheck.
            if let Some(params) = without_idempotency_key(&outgoing.params) {
                outgoing.params = params.into();
            }
        }
        Self {
            client,
            outgoing,
            terms,
            progress_token: progress_token.map(ToOwned::to_owned),
        }
    }

    pub(super) fn split(self) -> (ServerCall, CallOrigin) {
        let outgoing = match &self.client.span {
            // The spans of the server become children of raincheck's span, and so part of the client's trace.
            Some(span) => self.outgoing.traced(&span.to_server()),
            None => self.outgoing,
        };
        let server = ServerCall {
            era: self.terms.era.unwrap_or(Era::Legacy),
            outgoing: Arc::new(outgoing),
            rule: self.terms.rule,
        };
        let origin = CallOrigin {
            client: self.client,
            began: Instant::now(),
            repeatable: self.terms.repeatable,
            by_ticket: matches!(self.terms.announce, Announce::Ticket(_)),
            collected_by: self.terms.claim.filter(|_| self.terms.has_passed),
        };
        (server, origin)
    }
}

/// The form in which a client is notified that its call became a task.
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
    /// Returns `true` if the announcement serves the client better than the result as an event. A client that asked
    /// for tasks fetches a large result in any case.
    pub(super) fn is_better_than(&self, result: &RawValue) -> bool {
        let spares = match self {
            Self::Task => true,
            Self::Ticket(ticket) => !ticket.takes_large_events,
        };
        spares && result.get().len() > LARGE_EVENT
    }
}

/// Returns the time that a call of this rule may stay unanswered before it becomes a task.
pub(super) fn grace(rule: &Rule) -> Duration {
    Duration::from_millis(rule.grace_window_ms)
}

/// Too many calls are under way.
#[derive(Debug)]
pub struct Busy;

/// Why a call was not begun. Nothing of the call was stored or sent.
#[derive(Debug)]
pub enum AdmitError {
    Busy,
    QueueFull,
    /// An operator has paused the tool.
    Paused(Arc<Pause>),
    /// The caller has as many tasks as it may.
    Quota,
}

impl AdmitError {
    /// Returns the failure of the call.
    pub fn failure(&self) -> Failure {
        match self {
            Self::Busy => not_sent(Reason::Busy),
            Self::QueueFull => not_sent(Reason::QueueFull),
            Self::Paused(pause) => pause.failure(),
            Self::Quota => not_sent(Reason::Quota),
        }
    }
}

impl From<Busy> for AdmitError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<NotAdmitted> for AdmitError {
    fn from(why: NotAdmitted) -> Self {
        match why {
            NotAdmitted::QueueFull => Self::QueueFull,
            NotAdmitted::Paused(pause) => Self::Paused(pause),
        }
    }
}

/// The failure of a call that was not sent: the client may repeat it.
pub(super) fn not_sent(reason: Reason) -> Failure {
    Failure::new(reason, SideEffect::None)
}
