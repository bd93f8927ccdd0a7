//! Looks after tasks whose owner died, tasks that are overdue, and tasks that this replica should
//! carry and does not: after each heartbeat, beside it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::alarm::Alarm;
use super::call::not_sent;
use super::state::Runner;
use crate::mcp::error::Reason;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::{Fence, Incarnation, TaskId};
use crate::task::machine::Event;
use crate::task::state::Task;

/// Once a lease is this replica's own index gone through, and no more often than this: it may name
/// tens of thousands of tasks.
const RECONCILE: Duration = Duration::from_secs(15);

/// Tasks of the due index looked at in one sweep; the rest wait for the next.
const DUE_MAX: usize = 256;

/// Offered tasks that nobody had room for stand before those that are overdue: a sweep looks at so
/// many more at most.
const PASSED_MAX: usize = 1024;

/// What a sweep remembers of those before it.
struct Memory {
    /// When this replica's own index was gone through.
    reconciled: Instant,
    /// The lost owners that were told of.
    known: BTreeSet<Incarnation>,
    /// Tasks that stayed in the due index although they were looked at.
    passed: usize,
    /// Why a sweep did not go through.
    alarm: Alarm,
}

/// A task of an index, as its record stands.
pub(super) enum Look {
    Record(Box<Loaded>),
    Gone,
    /// No raincheck can read it: nothing can be done for its task.
    Unreadable,
    /// A newer raincheck looks after it.
    Newer,
}

impl Runner {
    /// Before the first call: what a dead process of the same store left behind.
    pub(super) async fn first_sweep(self: &Arc<Self>) -> Result<(), StoreError> {
        self.first_beat().await?;
        self.recover_all(&mut BTreeSet::new()).await
    }

    pub(super) async fn sweep_until_halted(self: Arc<Self>) {
        let mut beats = self.view.subscribe();
        let mut memory = Memory {
            reconciled: Instant::now(),
            known: BTreeSet::new(),
            passed: 0,
            alarm: Alarm::default(),
        };
        let work = async {
            while beats.changed().await.is_ok() {
                if let Err(error) = self.sweep(&mut memory).await {
                    // That the store is away is told by the heartbeat.
                    let is_news = memory.alarm.fails(error.kind(), Instant::now());
                    if is_news && *self.store_answers.borrow() {
                        warn!(%error, "the store did not answer the sweeper");
                    }
                    self.contact_broke();
                }
            }
        };
        // Every step is one commit, or is found again by whoever sweeps next.
        self.halt.run_until_cancelled(work).await;
    }

    async fn sweep(self: &Arc<Self>, memory: &mut Memory) -> Result<(), StoreError> {
        // A part of the store may fail by itself (a slot of a cluster, a right that was taken away):
        // what can be done beside it is done.
        let mut swept = self.recover_all(&mut memory.known).await;
        swept = swept.and(self.settle_doubts().await);
        swept = swept.and(self.look_at_due(&mut memory.passed).await);
        let now = Instant::now();
        if now.saturating_duration_since(memory.reconciled) >= self.settings.lease.max(RECONCILE) {
            memory.reconciled = now;
            swept = swept.and(self.reconcile().await);
        }
        swept
    }

    /// `known` are the lost owners that were told of before.
    async fn recover_all(
        self: &Arc<Self>,
        known: &mut BTreeSet<Incarnation>,
    ) -> Result<(), StoreError> {
        let dead = self.view().dead.clone();
        known.retain(|owner| dead.iter().any(|dead| dead.incarnation == *owner));
        for dead in &dead {
            if known.insert(dead.incarnation.clone()) {
                info!(
                    owner = dead.incarnation.as_str(),
                    "an owner's lease has ended"
                );
            }
            self.recover(dead).await?;
        }
        Ok(())
    }

    /// A record that cannot be read concerns nobody but its own task: what else is to be done is
    /// done all the same.
    pub(super) async fn look(&self, id: TaskId) -> Result<Look, StoreError> {
        match self.ledger.load(id).await {
            Ok(Some(loaded)) => Ok(Look::Record(Box::new(loaded))),
            Ok(None) => Ok(Look::Gone),
            Err(StoreError::Newer) => {
                debug!(task = ?id, "a record is left to newer replicas");
                Ok(Look::Newer)
            }
            Err(error @ StoreError::Corrupt(_)) => {
                warn!(task = ?id, %error, "a task cannot be looked after; it stays until it expires");
                Ok(Look::Unreadable)
            }
            Err(error @ (StoreError::Unavailable(_) | StoreError::Full)) => Err(error),
        }
    }

    /// Ends overdue tasks, owned or not, because an owner that is frozen ends nothing; claims those
    /// that a draining replica offers. `passed` is how many stayed in the index at the last look.
    async fn look_at_due(self: &Arc<Self>, passed: &mut usize) -> Result<(), StoreError> {
        let store = self.ledger.store();
        let limit = DUE_MAX + (*passed).min(PASSED_MAX);
        *passed = 0;
        for id in store.due(self.ledger.now_ms(), limit).await? {
            match self.look(id).await? {
                Look::Record(loaded)
                    if loaded.task.is_offered() && !self.is_overdue(&loaded.task) =>
                {
                    *passed += 1;
                    // A replica that drains itself begins no calls, and may be the one that offers.
                    if !self.draining.is_cancelled() {
                        self.dispatch_again(*loaded).await?;
                    }
                }
                Look::Record(loaded) => {
                    self.settle(&loaded, Event::Tick, Reason::Deadline).await;
                }
                Look::Newer => *passed += 1,
                // At the head of the index it would keep others waiting.
                Look::Gone | Look::Unreadable => store.forget(id, None).await?,
            }
        }
        Ok(())
    }

    fn is_overdue(&self, task: &Task) -> bool {
        let now_ms = self.ledger.now_ms();
        task.due_ms().is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// Ends what stands in this replica's own index and is not carried by it: a commit whose
    /// answer was lost, or a call that came to nothing between its commit and its dispatch.
    async fn reconcile(&self) -> Result<(), StoreError> {
        let store = self.ledger.store();
        for id in store.indexed(&self.incarnation).await? {
            if self.carried.contains(id) {
                continue;
            }
            match self.look(id).await? {
                Look::Record(loaded) if loaded.task.owner.as_ref() != Some(&self.incarnation) => {}
                // Entered between the index and the record.
                Look::Record(_) if self.carried.contains(id) => {}
                // A drain left it to other replicas, which find it here or in the due index.
                Look::Record(loaded) if loaded.task.released => {}
                Look::Record(loaded) => self.abandon(&loaded, Reason::StoreLost).await,
                Look::Newer => {}
                Look::Gone | Look::Unreadable => store.forget(id, Some(&self.incarnation)).await?,
            }
        }
        Ok(())
    }

    /// Ends creates whose caller was refused although the store may have taken them.
    async fn settle_doubts(&self) -> Result<(), StoreError> {
        loop {
            let next = self.in_doubt.lock().front().copied();
            let Some(id) = next else { return Ok(()) };
            // Under a claimed id another call may stand in the place of the one in doubt.
            if let Look::Record(loaded) = self.look(id).await?
                && loaded.task.owner.as_ref() == Some(&self.incarnation)
                && !self.carried.contains(id)
            {
                let event = Event::Abandoned {
                    fence: Fence(1),
                    failure: not_sent(Reason::StoreLost),
                };
                self.settle(&loaded, event, Reason::StoreLost).await;
            }
            let mut in_doubt = self.in_doubt.lock();
            if in_doubt.front() == Some(&id) {
                in_doubt.pop_front();
            }
        }
    }
}
