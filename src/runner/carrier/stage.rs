//! The stage of a call: plain, with nothing stored, or recorded.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::super::call::CallOrigin;
use super::super::custody::Custody;
use super::open_round::OpenRound;
use crate::mcp::input;
use crate::store::ledger::Loaded;
use crate::task::id::Fence;
use crate::task::machine::OwnerEvent;
use crate::task::state::{Leg, Task};
use crate::telemetry::traces::RequestSpan;
use crate::upstream::{Pin, Question};

/// The stage of a call. Boxed, because a call that waits for hours has long left the stage in which it began.
pub(super) enum CallStage {
    /// Nothing is stored: the answer may still be plain.
    Plain(Box<PlainCall>),
    /// The store has a record: parked, with no client notified of a task, or announced.
    Recorded(Box<RecordedCall>),
}

/// A call without a record.
pub(super) struct PlainCall {
    pub(super) origin: CallOrigin,
    /// The questions of a legacy server that are not answered yet.
    pub(super) asked: Vec<Question>,
    /// The last round of questions of a modern server. The leg before it has ended.
    pub(super) round: Option<OpenRound>,
    /// The rounds in which the client was asked.
    pub(super) rounds: usize,
    /// The store did not take the task at the end of the grace window.
    pub(super) window_failed: bool,
    /// A record in doubt, from which another replica would send the call, should this one die before it settles the
    /// doubt.
    pub(super) may_run_elsewhere: bool,
}

/// A call with a record.
pub(super) struct RecordedCall {
    /// The record as last seen.
    pub(super) loaded: Loaded,
    /// The fence of this carrier. Another fence in the record is another owner's.
    pub(super) fence: Fence,
    /// The leg that this carrier carries.
    pub(super) leg: Leg,
    pub(super) custody: Custody,
    /// The store has no request of the call. The first round of questions brings it along: who answers them sends the
    /// call again.
    pub(super) lacks_request: bool,
    /// Keeps the client's own session alive, which outlives its client's DELETE.
    _session: Option<TaskTrackerToken>,
}

impl CallStage {
    pub(super) fn recorded(&self) -> Option<&RecordedCall> {
        match self {
            Self::Plain(_) => None,
            Self::Recorded(recorded) => Some(recorded),
        }
    }

    pub(super) fn recorded_mut(&mut self) -> Option<&mut RecordedCall> {
        match self {
            Self::Plain(_) => None,
            Self::Recorded(recorded) => Some(recorded),
        }
    }

    /// The span of the client's request, as long as there is no record.
    pub(super) fn span(&self) -> Option<&RequestSpan> {
        match self {
            Self::Plain(plain) => plain.origin.client.span.as_deref(),
            Self::Recorded(_) => None,
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded().is_some()
    }
}

impl PlainCall {
    pub(super) fn new(origin: CallOrigin) -> Self {
        Self {
            origin,
            asked: Vec::new(),
            round: None,
            rounds: 0,
            window_failed: false,
            may_run_elsewhere: false,
        }
    }

    /// The open questions as events for a record. Removes the questions that no record can hold, for
    /// the caller to refuse them.
    pub(super) fn record_questions(&mut self) -> (Vec<OwnerEvent>, Vec<Question>) {
        let (mut events, mut refused) = (Vec::new(), Vec::new());
        for question in std::mem::take(&mut self.asked) {
            match asked(&question) {
                Some(event) => {
                    events.push(event);
                    // The store may refuse the record, and then the question is still open here.
                    self.asked.push(question);
                }
                None => refused.push(question),
            }
        }
        (events, refused)
    }
}

/// The question as an event for a record; `None`: no record can hold it.
pub(super) fn asked(question: &Question) -> Option<OwnerEvent> {
    let request = input::request_of_legacy(&question.method, question.params.as_deref());
    Some(OwnerEvent::Asked {
        origin: (&*question.id).into(),
        request: request.ok()?,
    })
}

impl RecordedCall {
    pub(super) fn new(loaded: Loaded, custody: Custody, pin: Option<&Pin>) -> Self {
        let (fence, leg) = (loaded.task.fence, loaded.task.leg);
        Self {
            loaded,
            fence,
            leg,
            custody,
            lacks_request: false,
            _session: pin.and_then(Pin::keep),
        }
    }

    pub(super) fn task(&self) -> &Task {
        &self.loaded.task
    }

    /// The record as this carrier itself changed it.
    pub(super) fn changed(&mut self, loaded: Loaded) {
        self.leg = loaded.task.leg;
        self.loaded = loaded;
    }

    /// When the record is due, by the clock that replicas share.
    pub(super) fn due(&self, now_ms: u64) -> Instant {
        let task = self.task();
        let due_ms = task.due_ms().unwrap_or(task.deadline_ms);
        Instant::now() + Duration::from_millis(due_ms.saturating_sub(now_ms))
    }

    /// Returns `true` if the call is for another replica from here on, and its client still wants it.
    pub(super) fn is_left(&self) -> bool {
        let task = self.task();
        task.is_wanted() && (task.released || task.fence != self.fence)
    }

    /// Returns `true` if another replica carries on, or may carry on, the very leg that this carrier sent.
    pub(super) fn is_carried_on(&self) -> bool {
        let task = self.task();
        let is_resumed = task.fence != self.fence && task.leg == self.leg;
        // Without a resume point no other replica can carry on a leg that was sent.
        let may_be = task.released && task.resume.is_some() || task.waits_for_client();
        matches!(self.leg, Leg::Sent(_)) && (is_resumed || may_be)
    }
}
