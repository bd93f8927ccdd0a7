//! The task: the record that every replica agrees on.
//!
//! The record holds no status: the status follows from the outcome and the open questions, so that no record has the
//! status "input required" without a question.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::cancelled_by::CancelledBy;
use super::digest::Digest;
use super::id::{Caller, Fence, Incarnation, TaskId};
use super::input_rule::OnInputTimeout;
use super::log_terms::LogTerms;
use super::messages::TaskMessage;
use super::notices::{Notices, ReceiverId};
use super::on_disconnect::OnDisconnect;
use super::policy::OnOwnerLost;
use super::progress::Progress;
use super::question::{Question, QuestionStage};
use super::resume_point::ResumePoint;
use super::ticket_terms::TicketTerms;
use super::trace::TaskTrace;
use crate::mcp::error::{Failure, Reason, SideEffect, own_failure};
use crate::mcp::json::Object;
use crate::mcp::result::is_tool_error;

/// The durable record of one call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a record: each is a fact of its own"
)]
pub struct Task {
    pub id: TaskId,
    pub caller: Caller,
    /// The name that operators know the caller by. It may be personal. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// The request that became this task; today always `tools/call` once announced.
    pub method: Box<str>,
    /// The name of the tool, or of the other thing that the request names.
    pub name: Box<str>,
    pub created_ms: u64,
    /// When the call began, which may be before its task was made. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ms: Option<u64>,
    pub updated_ms: u64,
    /// Raincheck ends the call at this time, even if the call waits for an answer or for its turn.
    pub deadline_ms: u64,
    /// The life of the record, from its creation. Fixed at creation.
    pub ttl_ms: u64,
    /// The shortest poll interval; the interval that clients receive grows with the task's age.
    pub poll_interval_ms: u64,
    /// The longest time for which one question stays unanswered; `None`: until the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_timeout_ms: Option<u64>,
    /// The handling of the question after that time. Replicas of an earlier version drop it, and fail the task then.
    #[serde(default, skip_serializing_if = "OnInputTimeout::is_fail")]
    pub on_input_timeout: OnInputTimeout,
    /// The time after which receivers are notified of an open question again. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_reminder_ms: Option<u64>,
    /// `true` if the task was announced to a client. `false` for a call that is parked with a question before that.
    pub announced: bool,
    /// `true` if the caller can have the task listed, once it is announced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
    #[serde(
        rename = "when_left",
        default,
        skip_serializing_if = "OnDisconnect::is_default"
    )]
    pub on_disconnect: OnDisconnect,
    /// The digest of the parked call; a retry must have the same digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The replica that carries the call. None while a modern call waits for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Incarnation>,
    pub fence: Fence,
    /// The replicas that reach the server of this call.
    #[serde(default, skip_serializing_if = "Reach::is_shared")]
    pub reach: Reach,
    /// The actions that a finder may take when the owner is lost. Decided at creation, so that every finder decides
    /// alike.
    #[serde(default)]
    pub on_owner_lost: OnOwnerLost,
    /// The number of times that the call was run again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// `true` if the owner left the call to other replicas: no replica carries it, and any finder may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    pub leg: Leg,
    /// When the call was first sent to the server. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ms: Option<u64>,
    /// The time in all in which questions were open. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "is_zero_ms")]
    pub input_wait_ms: u64,
    /// Every question of the task's life, in the order asked. Delivered questions have no text any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// Rounds of questions of a modern server.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// The point from which another process can fetch the answer: the session and the last event of a legacy server's
    /// resumable stream, or the id of a task or a job at the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumePoint>,
    /// The id of the job that the call started at the server. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<str>>,
    /// A modern server's own state, private to raincheck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<Box<str>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "Progress::known"
    )]
    pub progress: Option<Progress>,
    /// The last messages of the server. Replicas of an earlier version drop them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<TaskMessage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Set once the task is cancelled. Replicas of an earlier version drop it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "CancelledBy::known"
    )]
    pub cancelled_by: Option<CancelledBy>,
    /// `true` if the task has ended and the server must still be notified that no client waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub must_tell: bool,
    /// Set for a call with a log: its client reads the log, and is never notified of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Box<LogTerms>>,
    /// Set for a call whose client may get a ticket. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Box<TicketTerms>>,
    /// Set for a call whose trace is recorded. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TaskTrace>>,
    /// The tasks of the same caller that the request was about. Replicas of an earlier version drop them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<TaskId>,
    /// The notices of the task for each receiver of `[[notify]]`. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notices>,
}

/// The five statuses of the specification (tasks.md, Task Status).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn is_terminal(self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// One dispatch to the wrapped server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leg {
    /// The leg waits for its turn. Nothing is in flight: earlier legs have come to their end.
    Queued,
    /// The n-th dispatch was begun: the server may have run the call.
    Sent(u32),
    /// A modern server waits for the next dispatch, with answers. Nothing is in flight.
    Parked(u32),
}

/// The replicas that reach a task's server. To resume, answer or cancel the call a replica must reach it;
/// to run the call again it need not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Every replica.
    #[default]
    Shared,
    /// Only the replica of this id: the server is its own, as in a sidecar.
    Instance(Box<str>),
}

impl Reach {
    fn is_shared(&self) -> bool {
        *self == Self::Shared
    }
}

/// The way a task ended. Never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed(Payload),
    /// A JSON-RPC error object.
    Failed(Box<RawValue>),
    Cancelled,
}

impl Outcome {
    /// The end in one word (`completed`, `tool_error`, `failed` or `cancelled`), and the reason and the effect where
    /// raincheck itself failed the task, else empty texts: an error of the server has neither.
    pub fn words(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Completed(Payload::Inline(result)) if is_tool_error(result.get()) => {
                ("tool_error", "", "")
            }
            // A large result is kept beside the record, so only this mark shows that it is an error.
            Self::Completed(Payload::Kept { is_error: true, .. }) => ("tool_error", "", ""),
            Self::Completed(_) => ("completed", "", ""),
            Self::Failed(error) => {
                let (reason, effect) = own_failure(error).unwrap_or_default();
                ("failed", reason, effect)
            }
            Self::Cancelled => ("cancelled", "", ""),
        }
    }

    /// Returns the code of the error that the server answered with.
    pub fn server_code(&self) -> Option<i64> {
        match self {
            Self::Failed(error) if own_failure(error).is_none() => {
                let error = Object::parse(error.get()).ok()?;
                error.get("code")?.get().parse().ok()
            }
            Self::Failed(_) | Self::Completed(_) | Self::Cancelled => None,
        }
    }
}

/// Where a result is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    Inline(Box<RawValue>),
    /// In an entry of its own, which the fence of its writer names.
    Kept {
        fence: Fence,
        bytes: u64,
        /// `true` if the result is an error of the tool (`isError`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Task {
    pub fn status(&self) -> Status {
        match &self.outcome {
            Some(Outcome::Completed(_)) => Status::Completed,
            Some(Outcome::Failed(_)) => Status::Failed,
            Some(Outcome::Cancelled) => Status::Cancelled,
            None if self.open_questions().next().is_some() => Status::InputRequired,
            None => Status::Working,
        }
    }

    pub fn is_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// The questions that wait for the client, with their requests.
    pub fn open_questions(&self) -> impl Iterator<Item = (&Question, &RawValue)> {
        self.questions
            .iter()
            .filter_map(|question| match &question.stage {
                QuestionStage::Open(request) => Some((question, &**request)),
                QuestionStage::Answered(_)
                | QuestionStage::Delivered(_)
                | QuestionStage::Withdrawn => None,
            })
    }

    /// The answers that the server does not have yet.
    pub fn undelivered(&self) -> impl Iterator<Item = (&Question, &RawValue)> {
        self.questions
            .iter()
            .filter_map(|question| match &question.stage {
                QuestionStage::Answered(answer) => Some((question, &**answer)),
                QuestionStage::Open(_) | QuestionStage::Delivered(_) | QuestionStage::Withdrawn => {
                    None
                }
            })
    }

    /// Returns the time of the next reminder: that of the first open question that has had none.
    pub fn reminder_ms(&self) -> Option<u64> {
        let patience = self.input_reminder_ms?;
        let told_once = self.open_questions().filter(|(q, _)| !q.reminded);
        told_once
            .map(|(q, _)| q.asked_ms.saturating_add(patience))
            .min()
    }

    /// When a replica must look at this task again; `None` once it has ended.
    pub fn due_ms(&self) -> Option<u64> {
        if self.is_ended() {
            return None;
        }
        let patience = self.input_timeout_ms.unwrap_or(u64::MAX);
        let unanswered = self
            .open_questions()
            .map(|(q, _)| q.asked_ms.saturating_add(patience));
        let unanswered = unanswered.chain(self.reminder_ms());
        Some(unanswered.min().unwrap_or(u64::MAX).min(self.deadline_ms))
    }

    /// Returns `true` if no replica carries the call on, and the next request of its client has it carried on, with the
    /// credentials of that request.
    pub fn waits_for_client(&self) -> bool {
        self.owner.is_none()
            && !self.is_ended()
            && matches!(self.leg, Leg::Sent(_))
            && self.needs_client()
    }

    /// Returns `true` if the client may come back to a call that needs it: to its task, or to answer an open question.
    pub fn client_may_come(&self) -> bool {
        self.is_wanted() || self.open_questions().next().is_some()
    }

    /// Returns `true` if another process can fetch the answer only with credentials of the client.
    pub fn needs_client(&self) -> bool {
        self.resume.as_ref().is_some_and(|point| point.needs_client)
    }

    /// Returns `true` if any replica may claim the task at once: its owner's drain left it before it was sent. A call
    /// that was sent waits until its owner has let go of the server.
    pub fn is_offered(&self) -> bool {
        self.released && self.leg == Leg::Queued && !self.is_ended()
    }

    /// Returns the time under which the due index names the task: sweepers read the record from then on. An offered
    /// task has the time of its release. A task that has ended is named while a receiver must still be notified of
    /// it.
    pub fn look_ms(&self) -> Option<u64> {
        let offered_ms = self.is_offered().then_some(self.updated_ms);
        let times = [self.due_ms(), offered_ms, self.notice_ms()];
        times.into_iter().flatten().min()
    }

    /// Returns the notices of the task for this receiver.
    pub fn notices_of(&self, receiver: ReceiverId) -> Option<&Notices> {
        self.notices.iter().find(|it| it.receiver == receiver)
    }

    /// When a replica must look at the first notice of any receiver.
    pub fn notice_ms(&self) -> Option<u64> {
        self.notices.iter().filter_map(Notices::look_ms).min()
    }

    /// When the call began.
    pub fn call_began_ms(&self) -> u64 {
        self.began_ms.unwrap_or(self.created_ms)
    }

    /// Returns the time that the call has taken until now, or took until it ended.
    pub fn call_took_ms(&self, now_ms: u64) -> u64 {
        let until_ms = if self.is_ended() {
            self.updated_ms
        } else {
            now_ms
        };
        until_ms.saturating_sub(self.call_began_ms())
    }

    /// When the store may forget the record, with time to spare for skewed clocks. Half a minute after
    /// `ttlMs` nothing of a task is left.
    pub fn expires_ms(&self) -> u64 {
        self.created_ms
            .saturating_add(self.ttl_ms)
            .saturating_add(20_000)
    }

    /// Returns `true` if `ttlMs` has passed: to clients the task is unknown.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        now_ms >= self.created_ms.saturating_add(self.ttl_ms)
    }

    /// Returns `true` if a client can still ask for the end: the task was announced to a client, or the same call may
    /// come again.
    pub fn is_wanted(&self) -> bool {
        self.announced || self.on_disconnect != OnDisconnect::Cancel
    }

    /// Whose list names the task: its caller's, or that of a session of an anonymous caller.
    pub fn listed_for(&self) -> Option<Caller> {
        let session = self.ticket.as_ref().and_then(|ticket| ticket.session());
        self.listed.then_some(self.caller).or(session)
    }

    /// The replica whose index must name the task: the replica that still has to do something about it.
    pub fn indexed_for(&self) -> Option<&Incarnation> {
        if self.is_ended() && !self.must_tell {
            None
        } else {
            self.owner.as_ref()
        }
    }

    /// The failure of a call that raincheck gives up: only a call that was never sent is known not to have
    /// run.
    pub fn failure(&self, reason: Reason) -> Failure {
        let effect = if self.was_never_sent() {
            SideEffect::None
        } else {
            SideEffect::Unknown
        };
        Failure::new(reason, effect)
    }

    /// Returns `true` if the call was surely never sent to the server.
    pub fn was_never_sent(&self) -> bool {
        self.leg == Leg::Queued && self.round == 0 && self.attempts == 0
    }

    /// Returns `true` if this caller may see the task. Clients receive the same error for a foreign and for an
    /// unknown task.
    pub fn belongs_to(&self, caller: &Caller) -> bool {
        // Compared in constant time, so that the time of an answer shows nothing of another caller.
        aws_lc_rs::constant_time::verify_slices_are_equal(self.caller.as_bytes(), caller.as_bytes())
            .is_ok()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero_ms(ms: &u64) -> bool {
    *ms == 0
}
