//! The record of a call with a log, as the replica has it that carries the call: the owner of the record is the
//! writer of the log.

use serde_json::value::RawValue;

use super::super::custody::Custody;
use super::log::EventLog;
use crate::store::StoreError;
use crate::store::ledger::{ApplyError, CreateError, Loaded};
use crate::task::id::Fence;
use crate::task::input_rule::OnInputTimeout;
use crate::task::last_news::LastNews;
use crate::task::log_terms::{LogTerms, SealedPoint};
use crate::task::machine::{OwnerEvent, TakeoverMode, TaskEvent};
use crate::task::on_disconnect::OnDisconnect;
use crate::task::policy::OnOwnerLost;
use crate::task::state::{Leg, Outcome, Payload, Reach, Task};

/// The record outlives the call's time and its retention by this, in which the owner waits for the store.
const MARGIN_MS: u64 = 11 * 60 * 1000;

/// Which replica carries the call, as far as is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Ours,
    /// Another replica carries the call now, or will.
    Theirs,
}

/// The record of a call that this replica carries.
#[derive(Debug)]
pub(super) struct OwnedRecord {
    log: EventLog,
    /// The record as it is made, and made again if the store lost it.
    first: Task,
    /// The terms of the call, with the point that the record contains.
    terms: LogTerms,
    /// The record as last seen. `None`: the store has not taken it yet.
    loaded: Option<Loaded>,
    /// The fence of this owner. Another fence in the record is another owner's.
    fence: Fence,
    ownership: Ownership,
    /// The point that the record does not contain yet.
    point: Option<SealedPoint>,
    is_over: bool,
    custody: Custody,
}

impl OwnedRecord {
    /// The record of a new call. Nothing is written.
    pub(super) fn new(log: EventLog, tool: &str, terms: LogTerms) -> Self {
        let first = new_task(&log, tool, terms.clone());
        Self {
            terms,
            custody: log.custody(),
            fence: first.fence,
            first,
            log,
            loaded: None,
            ownership: Ownership::Ours,
            point: None,
            is_over: false,
        }
    }

    /// Claims a record that stands, for its call to be carried on here. `None`: another replica carries the
    /// call, or it is over.
    pub(super) async fn claimed(log: EventLog, stands: Loaded) -> Result<Option<Self>, StoreError> {
        // Before the claim: in between, the reconcile would take the call for forgotten.
        let custody = log.custody();
        let Some(loaded) = claim(&log, &stands).await? else {
            return Ok(None);
        };
        let Some(terms) = loaded.task.log.as_deref().cloned() else {
            return Ok(None);
        };
        Ok(Some(Self {
            terms,
            custody,
            fence: loaded.task.fence,
            first: loaded.task.clone(),
            log,
            loaded: Some(loaded),
            ownership: Ownership::Ours,
            point: None,
            is_over: false,
        }))
    }

    pub(super) fn tool(&self) -> &str {
        &self.first.name
    }

    pub(super) fn terms(&self) -> &LogTerms {
        &self.terms
    }

    /// The fence under which this replica writes the log.
    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    pub(super) fn is_lost(&self) -> bool {
        self.ownership == Ownership::Theirs
    }

    pub(super) fn is_written(&self) -> bool {
        let ended = self.loaded.as_ref().is_some_and(|it| it.task.is_ended());
        self.loaded.is_some() && (ended || (self.point.is_none() && !self.is_over))
    }

    /// Returns `true` if the record names a point from which the call can be resumed.
    pub(super) fn has_point(&self) -> bool {
        self.point.is_some() || self.terms.point.is_some()
    }

    pub(super) fn resumes_at(&mut self, point: SealedPoint) {
        self.point = Some(point);
    }

    pub(super) fn ends(&mut self) {
        self.is_over = true;
    }

    /// Resolves when the record changed. Cancel safe.
    pub(super) async fn changed(&self) {
        self.custody.changed().await;
    }

    /// Writes the changes that the record does not contain yet, unless another replica carries the call.
    pub(super) async fn write(&mut self) -> Result<(), StoreError> {
        // A record that the store lost is made again, and changed then.
        for _ in 0..3 {
            if self.is_lost() || self.is_written() {
                return Ok(());
            }
            if self.loaded.is_none() {
                self.create().await?;
            } else if let Some(point) = self.point.clone() {
                if self.apply(OwnerEvent::LogPoint(point.clone())).await? {
                    // If the store loses the record, it is made again from these terms.
                    self.terms.point = Some(point);
                    self.point = None;
                }
            } else {
                self.apply(ended()).await?;
            }
        }
        Ok(())
    }

    /// Leaves the call to another replica. `false`: the record could not be changed.
    pub(super) async fn release(&mut self) -> Result<bool, StoreError> {
        if self.apply(OwnerEvent::Released).await? {
            // Another replica may claim the call from now on, so this replica writes nothing more.
            self.ownership = Ownership::Theirs;
        }
        Ok(self.is_lost())
    }

    pub(super) async fn look(&mut self) -> Result<(), StoreError> {
        if let Some(stands) = self.log.ledger().load(self.first.id).await? {
            self.adopt(stands).await
        } else {
            // The store lost the record, or has not taken it yet.
            self.loaded = None;
            Ok(())
        }
    }

    async fn create(&mut self) -> Result<(), StoreError> {
        let task = Task {
            // Under another fence than the writer's, the record would refuse every later event of this owner.
            fence: self.fence,
            log: Some(Box::new(self.terms.clone())),
            ..self.first.clone()
        };
        match self.log.ledger().create(task, None).await {
            Ok(loaded) => {
                self.loaded = Some(loaded);
                Ok(())
            }
            // A create that seemed to fail, or another replica's claim after it.
            Err(CreateError::Taken) => self.look().await,
            Err(CreateError::Store(error)) => Err(error),
            // The ledger makes such a record over the quota, too, because its call was sent before.
            Err(CreateError::Quota) => Err(StoreError::Corrupt("a quota for a call with a log")),
        }
    }

    /// Applies the event; false if the record is another owner's, is over, or was lost by the store.
    async fn apply(&mut self, event: OwnerEvent) -> Result<bool, StoreError> {
        let Some(loaded) = &self.loaded else {
            return Ok(false);
        };
        let event = TaskEvent::Owner(self.fence, event);
        match self.log.ledger().apply(loaded, event).await {
            Ok((loaded, _)) => {
                self.loaded = Some(loaded);
                Ok(true)
            }
            Err(ApplyError::Rejected(_, stands)) => {
                self.adopt(*stands).await?;
                Ok(false)
            }
            Err(ApplyError::Gone) => {
                // The next round of `write` makes the record again.
                self.loaded = None;
                Ok(false)
            }
            Err(ApplyError::Store(error)) => Err(error),
        }
    }

    /// Takes the record as it stands now.
    async fn adopt(&mut self, stands: Loaded) -> Result<(), StoreError> {
        let task = &stands.task;
        let has_owner = task.owner.is_some() || task.is_ended();
        if task.fence == self.fence && !has_owner {
            // This replica was taken for lost, and no replica carries the call on.
            if let Some(claimed) = claim(&self.log, &stands).await? {
                self.fence = claimed.task.fence;
                self.loaded = Some(claimed);
                return Ok(());
            }
        } else if task.fence == self.fence || task.owner.as_ref() == Some(self.log.incarnation()) {
            // Under another fence the claim of this replica seemed to fail.
            self.fence = task.fence;
            self.loaded = Some(stands);
            return Ok(());
        }
        self.lost();
        Ok(())
    }

    /// Leaves the call to the replica that took it over.
    pub(super) fn lost(&mut self) {
        tracing::info!("a resumable call was taken over by another replica");
        self.ownership = Ownership::Theirs;
    }
}

/// Names this replica in the record. `None`: another replica carries the call, or it is over.
async fn claim(log: &EventLog, stands: &Loaded) -> Result<Option<Loaded>, StoreError> {
    let event = TaskEvent::Claimed {
        fence: stands.task.fence,
        by: log.incarnation().clone(),
        reach: Reach::Shared,
        takeover: TakeoverMode::Resume,
    };
    // `apply` may load the record again. If it has another fence by then, the machine refuses the claim.
    match log.ledger().apply(stands, event).await {
        Ok((claimed, _)) => Ok(Some(claimed)),
        Err(ApplyError::Rejected(..) | ApplyError::Gone) => Ok(None),
        Err(ApplyError::Store(error)) => Err(error),
    }
}

/// Returns the event that ends the record. The answer is in the log: the record contains only the fact that there is
/// one.
fn ended() -> OwnerEvent {
    OwnerEvent::Ended {
        outcome: Outcome::Completed(Payload::Inline(RawValue::NULL.to_owned())),
        message: None,
        last: LastNews::default(),
    }
}

fn new_task(log: &EventLog, tool: &str, terms: LogTerms) -> Task {
    let lasts_ms = terms.ends_ms.saturating_sub(terms.began_ms);
    Task {
        id: log.call(),
        caller: log.caller(),
        label: None,
        method: "tools/call".into(),
        name: tool.into(),
        created_ms: terms.began_ms,
        began_ms: None,
        updated_ms: terms.began_ms,
        // The owner ends the call in its time. This is for a call that nobody carries.
        deadline_ms: terms.ends_ms.saturating_add(MARGIN_MS),
        ttl_ms: lasts_ms
            .saturating_add(terms.retention_ms)
            .saturating_add(MARGIN_MS),
        poll_interval_ms: 0,
        input_timeout_ms: None,
        on_input_timeout: OnInputTimeout::Fail,
        input_reminder_ms: None,
        announced: false,
        listed: false,
        on_disconnect: OnDisconnect::Keep,
        digest: None,
        owner: Some(log.incarnation().clone()),
        fence: Fence(1),
        reach: Reach::Shared,
        on_owner_lost: OnOwnerLost::Resume,
        attempts: 0,
        released: false,
        leg: Leg::Sent(1),
        sent_ms: Some(terms.began_ms),
        input_wait_ms: 0,
        questions: Vec::new(),
        round: 0,
        resume: None,
        job: None,
        request_state: None,
        status_message: None,
        progress: None,
        messages: Vec::new(),
        outcome: None,
        cancelled_by: None,
        must_tell: false,
        log: Some(Box::new(terms)),
        ticket: None,
        trace: None,
        related: Vec::new(),
        notices: Vec::new(),
    }
}
