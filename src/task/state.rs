//! What a task is: the record that every replica agrees on.
//!
//! A status is never stored: it follows from the outcome and the open questions, so that
//! "input required, but nothing asked" cannot be written down.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::id::{Caller, Fence, Incarnation, TaskId};
use super::policy::OnOwnerLost;
use crate::mcp::error::{Failure, Reason, SideEffect};

/// The durable record of one call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a record: each is a fact of its own"
)]
pub struct Task {
    pub id: TaskId,
    pub caller: Caller,
    /// The request that became this task; today always `tools/call` once announced.
    pub method: Box<str>,
    /// The tool's name, or what else the request names.
    pub name: Box<str>,
    pub created_ms: u64,
    pub updated_ms: u64,
    /// The call is ended at this time, whatever it waits for.
    pub deadline_ms: u64,
    /// From creation to when the record may be forgotten. Fixed at creation.
    pub ttl_ms: u64,
    /// The shortest poll interval; what clients are told grows with the task's age.
    pub poll_interval_ms: u64,
    /// How long one question may stay unanswered; `None`: until the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_timeout_ms: Option<u64>,
    /// False for a call parked with a question before any client heard of a task.
    pub announced: bool,
    /// Its caller can have it listed, once it is announced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
    /// What becomes of the call when a client that waits for it goes away.
    #[serde(default, skip_serializing_if = "WhenLeft::is_default")]
    pub when_left: WhenLeft,
    /// Digest of what the parked call was asked to do; a retry must ask the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Who carries the call. Nobody while a modern call waits for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Incarnation>,
    pub fence: Fence,
    /// Who can get at the server that runs it.
    #[serde(default, skip_serializing_if = "Reach::is_shared")]
    pub reach: Reach,
    /// What may be done when the owner is lost. Decided at creation, so that every finder decides
    /// alike.
    #[serde(default)]
    pub on_owner_lost: OnOwnerLost,
    /// How often it was run again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The owner left it to others in good order: nobody carries it, and whoever finds it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    pub leg: Leg,
    /// Every question of the task's life, in the order asked; answered ones without their texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// Rounds of questions of a modern server.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// Where the answer of a call under way can be had by somebody else, sealed: the session and
    /// the last event of a legacy server's resumable stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Box<str>>,
    /// A modern server's own state, private to raincheck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The task has ended, but the server was not told yet that nobody waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub must_tell: bool,
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

/// What becomes of a call whose client goes away before it has its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenLeft {
    /// Nobody can ask for it again (streamable-http, Cancellation).
    #[default]
    Cancelled,
    /// The same call again may come within so many milliseconds.
    RunsFor(u64),
    /// Its client has a key to come back with.
    RunsOn,
}

impl WhenLeft {
    fn is_default(&self) -> bool {
        *self == Self::Cancelled
    }
}

/// One dispatch to the wrapped server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leg {
    /// Nothing is in flight: it waits for its turn. What was sent before has come to its end.
    Queued,
    /// The n-th dispatch was begun: the server may have run it.
    Sent(u32),
    /// Nothing is in flight: a modern server waits for the next dispatch with answers.
    Parked(u32),
}

/// Who can get at a task's server: resuming, answering and cancelling there need it, running the
/// call again does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Every replica.
    #[default]
    Shared,
    /// The replica of this id only: the server is its own, as in a sidecar.
    Instance(Box<str>),
}

impl Reach {
    fn is_shared(&self) -> bool {
        *self == Self::Shared
    }
}

/// A question of the wrapped server to the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// Unique for the life of the task (tasks.md, Task Update Requests).
    pub key: Box<str>,
    /// The server's own name for it: a modern input key, or a legacy JSON-RPC id as JSON. Empty
    /// when the run that asked is over: the next run's names may be the same.
    pub origin: Box<str>,
    pub asked_ms: u64,
    pub stage: Stage,
}

/// How far a question has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Waits for the client. The request as JSON: method and params.
    Open(Box<RawValue>),
    /// Answered by the client, not yet passed on.
    Answered(Box<RawValue>),
    /// Passed on; what was answered is remembered by digest only.
    Delivered(Digest),
    /// The run that asked is over, and nobody waits for an answer.
    Withdrawn,
}

/// The first half of a SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest([u8; 16]);

impl Digest {
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    pub fn of(parts: &[&str]) -> Self {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for part in parts {
            // The length first, so that no two lists of parts read the same.
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        let mut half = [0_u8; 16];
        for (to, from) in half.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        Self(half)
    }
}

/// The latest progress of the server, numbers as it wrote them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub progress: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}

/// How a task ended. Never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed(Payload),
    /// A JSON-RPC error object.
    Failed(Box<RawValue>),
    Cancelled,
}

/// Where a result is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    Inline(Box<RawValue>),
    /// In an entry of its own, named by the fence under which it was written.
    Kept {
        fence: Fence,
        bytes: u64,
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
                Stage::Open(request) => Some((question, &**request)),
                Stage::Answered(_) | Stage::Delivered(_) | Stage::Withdrawn => None,
            })
    }

    /// The answers that were not passed on yet.
    pub fn undelivered(&self) -> impl Iterator<Item = (&Question, &RawValue)> {
        self.questions
            .iter()
            .filter_map(|question| match &question.stage {
                Stage::Answered(answer) => Some((question, &**answer)),
                Stage::Open(_) | Stage::Delivered(_) | Stage::Withdrawn => None,
            })
    }

    /// When somebody must look at this task again; `None` once it has ended.
    pub fn due_ms(&self) -> Option<u64> {
        if self.is_ended() {
            return None;
        }
        let patience = self.input_timeout_ms.unwrap_or(u64::MAX);
        let unanswered = self
            .open_questions()
            .map(|(q, _)| q.asked_ms.saturating_add(patience));
        Some(unanswered.min().unwrap_or(u64::MAX).min(self.deadline_ms))
    }

    /// Left to others by its owner's drain before it was sent: any replica may claim it at once. A
    /// call that was sent waits until its owner has let go of the server.
    pub fn is_offered(&self) -> bool {
        self.released && self.leg == Leg::Queued && !self.is_ended()
    }

    /// The time under which the due index names the task: sweepers read the record from then on. An
    /// offered task stands there since it was released.
    pub fn look_ms(&self) -> Option<u64> {
        let due_ms = self.due_ms()?;
        Some(if self.is_offered() {
            due_ms.min(self.updated_ms)
        } else {
            due_ms
        })
    }

    /// When the record may be forgotten, with time to spare for skewed clocks; half a minute after
    /// `ttlMs` nothing of a task is left.
    pub fn expires_ms(&self) -> u64 {
        self.created_ms
            .saturating_add(self.ttl_ms)
            .saturating_add(20_000)
    }

    /// True once `ttlMs` has passed: to clients an unknown task.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        now_ms >= self.created_ms.saturating_add(self.ttl_ms)
    }

    /// Somebody can still ask for its end: its client heard of it, or may come with the same call.
    pub fn is_wanted(&self) -> bool {
        self.announced || self.when_left != WhenLeft::Cancelled
    }

    /// In whose index the task must stand: whoever still has to do something about it.
    pub fn indexed_for(&self) -> Option<&Incarnation> {
        if self.is_ended() && !self.must_tell {
            None
        } else {
            self.owner.as_ref()
        }
    }

    /// What raincheck may say of a call that it gives up: only a call that was never sent is known
    /// not to have run.
    pub fn failure(&self, reason: Reason) -> Failure {
        let effect = match self.leg {
            Leg::Queued if self.round == 0 && self.attempts == 0 => SideEffect::None,
            Leg::Queued | Leg::Sent(_) | Leg::Parked(_) => SideEffect::Unknown,
        };
        Failure::new(reason, effect)
    }

    /// Whether this caller may see the task: the same answer for foreign as for unknown.
    pub fn belongs_to(&self, caller: &Caller) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.caller.as_bytes(), caller.as_bytes())
            .is_ok()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
