//! The sweeper: after each heartbeat it handles tasks whose owner died, tasks that are overdue, and tasks
//! that name this replica as owner and that this replica does not carry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::alarm::Alarm;
use super::call::not_sent;
use super::due::DueHistory;
use super::indexed::IndexedRecord;
use super::state::Runner;
use crate::mcp::error::Reason;
use crate::store::StoreError;
use crate::task::id::Incarnation;
use crate::task::machine::TaskEvent;
use crate::telemetry::metrics::METRICS;

/// The shortest pause between two looks through this replica's own index, which may name tens of thousands
/// of tasks. A longer lease makes the pause longer.
const RECONCILE: Duration = Duration::from_secs(15);

/// The state that a sweep keeps from the sweeps before it.
struct SweepHistory {
    /// When the sweeper last went through this replica's own index.
    reconciled: Instant,
    /// The lost owners that were logged.
    known: BTreeSet<Incarnation>,
    due: DueHistory,
    /// Why the last sweep failed.
    failed: Option<StoreError>,
    /// The failures of sweeps that were logged.
    alarm: Alarm,
}

impl SweepHistory {
    /// Logs that sweeps began to fail, unless the whole store was away. The line has a place of its own: the limit of
    /// warnings about an outage may be used up, and this line comes once.
    fn tell_of_failure(&mut self, was_away: bool) {
        let failed = self.failed.take().filter(|_| !was_away);
        if let Some(error) = failed
            && self.alarm.fails(error.kind(), Instant::now())
        {
            warn!(
                %error,
                "a sweep failed while the store answers heartbeats; overdue tasks and those of lost owners wait"
            );
        }
    }
}

impl Runner {
    /// Handles the tasks that a dead process left in the same store, before the first call.
    pub(super) async fn first_sweep(self: &Arc<Self>) -> Result<(), StoreError> {
        self.first_beat().await?;
        self.ensure_pauses_read().await?;
        self.recover_all(&mut BTreeSet::new()).await
    }

    pub(super) async fn sweep_until_halted(self: Arc<Self>) {
        let mut beats = self.liveness.subscribe();
        let mut answers = self.store_answers.subscribe();
        let mut history = SweepHistory {
            reconciled: Instant::now(),
            known: BTreeSet::new(),
            due: DueHistory::default(),
            failed: None,
            alarm: Alarm::default(),
        };
        let work = async {
            // The channel keeps only the newest heartbeat, so a slow sweep is followed by one sweep and not by a
            // burst.
            while beats.changed().await.is_ok() {
                // An outage is logged by the heartbeat, so the next heartbeat says whether it is one.
                let was_away = answers.has_changed().unwrap_or(true);
                history.tell_of_failure(was_away);
                answers.mark_unchanged();
                let swept = self.sweep(&mut history).await;
                if swept.is_ok() && history.alarm.works() {
                    info!("sweeps work again");
                }
                history.failed = swept.err();
                if history.failed.is_some() {
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
        let mut swept = self.ensure_pauses_read().await;
        if swept.is_ok() {
            swept = self.recover_all(&mut history.known).await;
        }
        swept = swept.and(self.settle_doubts().await);
        swept = swept.and(self.sweep_due(&mut history.due).await);
        let now = Instant::now();
        if now.saturating_duration_since(history.reconciled) >= self.settings.lease.max(RECONCILE) {
            // Noted even if the reconcile fails, because the index may be too large to be read after every heartbeat.
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
        // Cloned, because the heartbeat cannot write its next view while a borrow of the old one is held.
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

    /// Ends the tasks in this replica's own index that it does not carry. Such a task remains when the answer
    /// to a commit was lost, or when a call failed between its commit and its dispatch.
    async fn reconcile(self: &Arc<Self>) -> Result<(), StoreError> {
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
                IndexedRecord::Record(loaded)
                    if loaded.task.log.is_some()
                        || !loaded.task.is_ended()
                            && loaded.task.needs_client()
                            && loaded.task.client_may_come() =>
                {
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
            // The id stays in the list until it is settled, so that an outage of the store does not lose it.
            let next = self.in_doubt.lock().front().copied();
            let Some(id) = next else { return Ok(()) };
            // Under a claimed id the record may belong to another call.
            if let IndexedRecord::Record(loaded) = self.read_indexed(id).await?
                && loaded.task.owner.as_ref() == Some(&self.incarnation)
                && !self.carried.contains(id)
            {
                let event = TaskEvent::Abandoned {
                    fence: loaded.task.fence,
                    failure: not_sent(Reason::StoreLost),
                };
                self.settle(&loaded, event).await;
            }
            let mut in_doubt = self.in_doubt.lock();
            // The list may have been full meanwhile, and then a newer doubt has pushed this one out.
            if in_doubt.front() == Some(&id) {
                in_doubt.pop_front();
            }
        }
    }
}
