//! The sweeper: after each heartbeat it handles tasks whose owner died, tasks that are overdue, and tasks
//! that name this replica as owner and that this replica does not carry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::alarm::Alarm;
use super::call::not_sent;
use super::notices::NoticesLeft;
use super::state::Runner;
use crate::mcp::error::Reason;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::{Fence, Incarnation, TaskId};
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::TaskEvent;
use crate::task::state::Task;
use crate::task::unanswered::{self};
use crate::telemetry::metrics::METRICS;
use crate::telemetry::repeats::OF_OUTAGE;
use crate::upstream::Forwarded;

/// The shortest pause between two looks through this replica's own index, which may name tens of thousands
/// of tasks. A longer lease makes the pause longer.
const RECONCILE: Duration = Duration::from_secs(15);

/// The number of tasks of the due index that one sweep looks at; the rest wait for the next.
const DUE_MAX: usize = 256;

/// The most tasks that a sweep looks at beyond [`DUE_MAX`]. Offered tasks for which no replica had room come
/// before overdue tasks in the index.
const PASSED_MAX: usize = 1024;

/// What a sweep remembers of the sweeps before it.
struct SweepHistory {
    /// When the sweeper last went through this replica's own index.
    reconciled: Instant,
    /// The lost owners that were logged.
    known: BTreeSet<Incarnation>,
    /// The number of tasks that stayed in the due index although a sweep looked at them.
    passed: usize,
    /// The failures of sweeps.
    alarm: Alarm,
}

/// What an index entry leads to.
pub(super) enum IndexedRecord {
    Record(Box<Loaded>),
    Gone,
    /// No raincheck can read the record: nothing can be done for its task.
    Unreadable,
    /// Other replicas can read the record, and handle its task: a newer raincheck wrote it, or it is sealed under a
    /// key that this replica does not have.
    OthersOnly,
}

impl Runner {
    /// Handles the tasks that a dead process left in the same store, before the first call.
    pub(super) async fn first_sweep(self: &Arc<Self>) -> Result<(), StoreError> {
        self.first_beat().await?;
        self.recover_all(&mut BTreeSet::new()).await
    }

    pub(super) async fn sweep_until_halted(self: Arc<Self>) {
        let mut beats = self.liveness.subscribe();
        let mut history = SweepHistory {
            reconciled: Instant::now(),
            known: BTreeSet::new(),
            passed: 0,
            alarm: Alarm::default(),
        };
        let work = async {
            while beats.changed().await.is_ok() {
                if let Err(error) = self.sweep(&mut history).await {
                    // The heartbeat logs that the store is away.
                    let is_news = history.alarm.fails(error.kind(), Instant::now());
                    if is_news && *self.store_answers.borrow() {
                        warn!(name: OF_OUTAGE, %error, "the store did not answer the sweeper");
                    }
                    self.contact_broke();
                }
            }
        };
        // The work can be cut off here: every step is one commit, and the next sweep of any replica finds
        // what is left.
        self.halt.run_until_cancelled(work).await;
    }

    async fn sweep(self: &Arc<Self>, history: &mut SweepHistory) -> Result<(), StoreError> {
        // A part of the store may fail by itself (a slot of a cluster, a right that was taken away). The
        // other steps are done all the same.
        let mut swept = self.recover_all(&mut history.known).await;
        swept = swept.and(self.settle_doubts().await);
        swept = swept.and(self.sweep_due(&mut history.passed).await);
        let now = Instant::now();
        if now.saturating_duration_since(history.reconciled) >= self.settings.lease.max(RECONCILE) {
            history.reconciled = now;
            swept = swept.and(self.reconcile().await);
        }
        swept
    }

    /// Recovers the tasks of every lost owner. `known` are the owners that were logged before.
    async fn recover_all(
        self: &Arc<Self>,
        known: &mut BTreeSet<Incarnation>,
    ) -> Result<(), StoreError> {
        let dead = self.liveness().dead.clone();
        known.retain(|owner| dead.iter().any(|dead| dead.incarnation == *owner));
        for dead in &dead {
            if known.insert(dead.incarnation.clone()) {
                METRICS.process.owners_lost.inc();
                info!(
                    owner = dead.incarnation.as_str(),
                    "an owner's lease has ended"
                );
            }
            self.recover(dead).await?;
        }
        Ok(())
    }

    /// Reads the record of an index entry. A record that cannot be read is no error: the sweep goes on with
    /// the other tasks.
    pub(super) async fn read_indexed(&self, id: TaskId) -> Result<IndexedRecord, StoreError> {
        match self.ledger.load(id).await {
            Ok(Some(loaded)) => Ok(IndexedRecord::Record(Box::new(loaded))),
            Ok(None) => Ok(IndexedRecord::Gone),
            Err(error @ (StoreError::Newer | StoreError::UnknownKey)) => {
                debug!(task = ?id, %error, "a record is left to other replicas");
                Ok(IndexedRecord::OthersOnly)
            }
            Err(error @ StoreError::Corrupt(_)) => {
                warn!(task = ?id, %error, "a task cannot be handled; it stays until it expires");
                Ok(IndexedRecord::Unreadable)
            }
            Err(error @ (StoreError::Unavailable(_) | StoreError::Full)) => Err(error),
        }
    }

    /// Ends overdue tasks, owned or not, because an owner that is frozen ends nothing. Tells again of questions that wait
    /// for long, and gives the answers of rules. Claims the tasks that a
    /// draining replica offers. `passed` is the number of tasks that stayed in the index at the last sweep.
    async fn sweep_due(self: &Arc<Self>, passed: &mut usize) -> Result<(), StoreError> {
        let store = self.ledger.store();
        let limit = DUE_MAX + (*passed).min(PASSED_MAX);
        *passed = 0;
        let mut notices_left = NoticesLeft::new();
        for id in store.due(self.ledger.now_ms(), limit).await? {
            match self.read_indexed(id).await? {
                IndexedRecord::Record(loaded) if loaded.task.is_ended() => {
                    *passed += usize::from(!self.tell_receivers(&loaded, &mut notices_left).await);
                }
                IndexedRecord::Record(loaded)
                    if loaded.task.is_offered() && !self.is_overdue(&loaded.task) =>
                {
                    *passed += 1;
                    // A replica that drains begins no calls, and may have offered the task itself.
                    if !self.draining.is_cancelled() {
                        self.dispatch_again(*loaded).await?;
                    }
                }
                IndexedRecord::Record(loaded) => {
                    *passed += usize::from(!self.on_due(*loaded, &mut notices_left).await);
                }
                IndexedRecord::OthersOnly => *passed += 1,
                // At the head of the index the entry would keep others waiting.
                IndexedRecord::Gone | IndexedRecord::Unreadable => store.forget(id, None).await?,
            }
        }
        Ok(())
    }

    /// Does what is due for the task: tells its receivers, as far as `notices_left` goes, answers or repeats its
    /// questions by the rule, and ends the task at its deadline. False: something is left to do, and the task
    /// stays in the index.
    async fn on_due(self: &Arc<Self>, loaded: Loaded, notices_left: &mut NoticesLeft) -> bool {
        let has_told = self.tell_receivers(&loaded, notices_left).await;
        if let Some(answers) = unanswered::answers(&loaded.task, self.ledger.now_ms()) {
            let from = (AnsweredBy::Rule, Forwarded::default());
            return self.answer(loaded, answers, from).await.is_ok() && has_told;
        }
        self.settle(&loaded, TaskEvent::Tick).await;
        has_told
    }

    fn is_overdue(&self, task: &Task) -> bool {
        let now_ms = self.ledger.now_ms();
        task.due_ms().is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// Ends the tasks in this replica's own index that it does not carry. Such a task remains when the answer
    /// to a commit was lost, or when a call failed between its commit and its dispatch.
    async fn reconcile(&self) -> Result<(), StoreError> {
        let store = self.ledger.store();
        for id in store.indexed(&self.incarnation).await? {
            if self.carried.contains(id) {
                continue;
            }
            match self.read_indexed(id).await? {
                IndexedRecord::Record(loaded)
                    if loaded.task.owner.as_ref() != Some(&self.incarnation) => {}
                // The task was entered between the reads of the index and of the record.
                IndexedRecord::Record(_) if self.carried.contains(id) => {}
                // A drain left the task to other replicas, which find it here or in the due index.
                IndexedRecord::Record(loaded) if loaded.task.released => {}
                IndexedRecord::Record(loaded) if loaded.task.log.is_some() => {
                    self.orphan(&loaded).await;
                }
                IndexedRecord::Record(loaded) => self.abandon(&loaded, Reason::StoreLost).await,
                IndexedRecord::OthersOnly => {}
                IndexedRecord::Gone | IndexedRecord::Unreadable => {
                    store.forget(id, Some(&self.incarnation)).await?;
                }
            }
        }
        Ok(())
    }

    /// Ends creates whose caller was refused although the store may have taken them.
    async fn settle_doubts(&self) -> Result<(), StoreError> {
        loop {
            let next = self.in_doubt.lock().front().copied();
            let Some(id) = next else { return Ok(()) };
            // Under a claimed id the record may belong to another call.
            if let IndexedRecord::Record(loaded) = self.read_indexed(id).await?
                && loaded.task.owner.as_ref() == Some(&self.incarnation)
                && !self.carried.contains(id)
            {
                let event = TaskEvent::Abandoned {
                    fence: Fence(1),
                    failure: not_sent(Reason::StoreLost),
                };
                self.settle(&loaded, event).await;
            }
            let mut in_doubt = self.in_doubt.lock();
            if in_doubt.front() == Some(&id) {
                in_doubt.pop_front();
            }
        }
    }
}
