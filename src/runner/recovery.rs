//! Takes over the tasks of a lost owner. A replica claims a task by a commit, so that of two replicas one
//! wins.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::timeout;
use tracing::info;

use super::CallPermit;
use super::carrier::Carrier;
use super::custody::Custody;
use super::indexed::IndexedRecord;
use super::leg;
use super::liveness::Liveness;
use super::state::Runner;
use super::taken_up;
use crate::base::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason};
use crate::store::ledger::{ApplyError, Loaded, Tried};
use crate::store::seal::Binding;
use crate::store::{Dead, StoreError};
use crate::task::id::{Incarnation, TaskId};
use crate::task::machine::{OwnerEvent, TakeoverMode, TaskEvent};
use crate::task::recovery::{Finder, RecoveryStep, decide};
use crate::task::state::{Reach, Task};
use crate::telemetry::metrics::METRICS;
use crate::upstream::{Exchange, Forwarded};

/// The number of tasks of one lost owner that are looked at together.
const TOGETHER: usize = 16;

/// The maximum time for notifying the server that no client waits for a lost owner's call.
const TELL_PATIENCE: Duration = Duration::from_secs(2);

/// The kind of value that a resume point is sealed as.
const RESUME: &str = "resume";

impl Runner {
    /// Handles every task in a lost owner's index, then forgets the owner if no task is left. A task stays in
    /// the index if a later sweep may handle it better.
    pub(super) async fn recover(self: &Arc<Self>, dead: &Dead) -> Result<(), StoreError> {
        let store = self.ledger.store();
        let left_behind = store.indexed(&dead.incarnation).await?;
        // All tasks are tried before the first error is returned, so that one bad record does not stop the others.
        let recovered: Vec<Result<(), StoreError>> = stream::iter(left_behind)
            .map(|id| self.recover_task(id, dead))
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        recovered.into_iter().collect::<Result<(), StoreError>>()?;
        // The index is read again, because the owner must stay listed as long as a task is left for a later sweep.
        if store.indexed(&dead.incarnation).await?.is_empty() {
            store.retire(&dead.incarnation).await?;
        }
        Ok(())
    }

    async fn recover_task(self: &Arc<Self>, id: TaskId, dead: &Dead) -> Result<(), StoreError> {
        // An owner that was frozen may have come back since the last heartbeat.
        if !self.liveness().lost(&dead.incarnation) {
            return Ok(());
        }
        let loaded = match self.read_indexed(id).await? {
            IndexedRecord::Record(loaded) => *loaded,
            IndexedRecord::OthersOnly => return Ok(()),
            // An entry without a task would keep its owner in the list for ever.
            IndexedRecord::Gone | IndexedRecord::Unreadable => {
                let store = self.ledger.store();
                return store.forget(id, Some(&dead.incarnation)).await;
            }
        };
        let task = &loaded.task;
        // Another finder may have claimed the task since the index was read.
        if task.owner.as_ref() != Some(&dead.incarnation) {
            return Ok(());
        }
        let point = self.unseal(task);
        let finder = Finder {
            within_reach: self.is_within_reach(&task.reach),
            unseals: point.is_some(),
            waited: self.has_waited(dead),
        };
        match decide(task, finder) {
            RecoveryStep::Leave | RecoveryStep::Wait => {}
            RecoveryStep::Resume => self.resume(loaded, point).await,
            RecoveryStep::Dispatch => self.dispatch_again(loaded).await?,
            RecoveryStep::Tell => {
                if let Some(exchange) = self.adopt(task, point, Forwarded::default()) {
                    // A server that is slow to hear must not hold the sweep up.
                    let _ = timeout(TELL_PATIENCE, exchange.control.cancel()).await;
                    // With this the drop of the exchange may close the session, which no other replica needs.
                    exchange.control.hold();
                }
                recovered("told");
                self.note_told(&loaded).await;
            }
            RecoveryStep::Untellable => self.note_told(&loaded).await,
            RecoveryStep::Orphan => self.orphan(&loaded).await,
            RecoveryStep::Fail(failure) => self.fail_lost(&loaded, failure).await,
        }
        Ok(())
    }

    /// Notes that no replica carries the call. Its client may come back and have it carried on; else the due index leads to its
    /// end.
    pub(super) async fn orphan(self: &Arc<Self>, loaded: &Loaded) {
        let fence = loaded.task.fence;
        // If the commit fails, the next sweep finds the record again.
        let event = TaskEvent::Orphaned { fence };
        if let Ok(Tried::Done(orphaned, _)) = self.ledger.try_apply(loaded, event).await
            && orphaned.task.waits_for_client()
        {
            recovered("waits_for_client");
            taken_up::note_waiting(&orphaned.task);
            // The replica that looked whether a client waits for the call is lost.
            self.cancel_if_abandoned(orphaned.task.id, orphaned.task.on_disconnect);
        }
    }

    /// Claims a task that waits for its client, and carries its call on here. `from`: the part of a request of that client that the
    /// server gets. Returns the task as it is then; unchanged, if this replica cannot do it now.
    pub async fn take_up(self: &Arc<Self>, loaded: Loaded, from: Forwarded) -> Loaded {
        let task = &loaded.task;
        let Some(credentials) = &from.credentials else {
            return loaded;
        };
        let may_take = task.waits_for_client()
            && self.is_within_reach(&task.reach)
            && !self.draining.is_cancelled();
        let point = may_take.then(|| self.unseal(task)).flatten();
        let (Some(point), Ok(permit)) = (point, self.permit()) else {
            return loaded;
        };
        if !self.taken_up.may_take(task.id, credentials) {
            return loaded;
        }
        let Some(exchange) = self.adopt(task, Some(point), from.clone()) else {
            // Its session has ended.
            self.abandon(&loaded, Reason::OwnerLost).await;
            return loaded;
        };
        let (runner, found) = (Arc::clone(self), loaded.clone());
        // In a job of its own: a client that leaves meanwhile must not leave a claimed call without its carrier.
        let carrying = self
            .calls
            .spawn(async move { runner.carry_on(&found, exchange, from, permit).await });
        carrying.await.ok().flatten().unwrap_or(loaded)
    }

    /// Fails the task of a lost owner. A record that changed since it was read has an owner that lives, or
    /// another finder: then nothing happens.
    async fn fail_lost(&self, loaded: &Loaded, failure: Failure) {
        let event = TaskEvent::Abandoned {
            fence: loaded.task.fence,
            failure,
        };
        if let Ok(Tried::Done(..)) = self.ledger.try_apply(loaded, event).await {
            recovered("failed");
        }
    }

    /// Fetches the answer of a call that still runs at the server.
    async fn resume(self: &Arc<Self>, loaded: Loaded, point: Option<String>) {
        // Without room here the task waits for a replica that has some.
        let Ok(permit) = self.permit() else { return };
        let from = Forwarded::default();
        let Some(exchange) = self.adopt(&loaded.task, point, from.clone()) else {
            return self.abandon(&loaded, Reason::OwnerLost).await;
        };
        self.carry_on(&loaded, exchange, from, permit).await;
    }

    /// Claims the task, and carries its call on over that exchange.
    async fn carry_on(
        self: &Arc<Self>,
        loaded: &Loaded,
        exchange: Exchange,
        from: Forwarded,
        permit: CallPermit,
    ) -> Option<Loaded> {
        let custody = Custody::of(self, &loaded.task);
        // Without the claim another replica carries the call, on the same session: this one must not close
        // the session.
        let claimed = self.claim(loaded, TakeoverMode::Resume).await?;
        exchange.control.hold();
        recovered("resumed");
        let task = &claimed.task;
        info!(task = ?task.id, tool = %task.name, "a call is carried on for its lost owner");
        let runner = Arc::clone(self);
        let carrier = Carrier::adopted(runner, claimed.clone(), custody, exchange, from);
        self.spawn(carrier.task_id(), carrier.run(), permit);
        Some(claimed)
    }

    /// Sends a call for the first time, or again where that is safe.
    pub(super) async fn dispatch_again(self: &Arc<Self>, loaded: Loaded) -> Result<(), StoreError> {
        // Without room the task stays in its index, for a later sweep or for another replica.
        let Ok(permit) = self.permit() else {
            return Ok(());
        };
        let Some(era) = self.upstream.known_era() else {
            self.ask_era();
            return Ok(());
        };
        // A call whose request is gone can be sent by no replica, so its task must not stay open until its deadline.
        let Some(request) = self.ledger.load_request(loaded.task.id).await? else {
            self.abandon(&loaded, Reason::OwnerLost).await;
            return Ok(());
        };
        let Ok(outgoing) = leg::next(&request, &loaded.task, Forwarded::default()) else {
            self.abandon(&loaded, Reason::OwnerLost).await;
            return Ok(());
        };
        let custody = Custody::of(self, &loaded.task);
        // A call that was sent before is under way, and a pause is for those that are not.
        let (tool, is_new) = (&*loaded.task.name, loaded.task.sent_ms.is_none());
        let limits = if is_new {
            self.admission.queue_new(tool)
        } else {
            self.admission.queue(tool)
        };
        let pausing = || is_new.then(|| self.admission.pausing_of(tool));
        let admittance = limits.with_seat(&self.upstream, Some(era), &outgoing, pausing);
        // The claim itself must record that the leg waits, or after a crash the leg would count as sent.
        let takeover = if admittance.is_queued() {
            TakeoverMode::Queue
        } else {
            TakeoverMode::Dispatch
        };
        let Some(claimed) = self.claim(&loaded, takeover).await else {
            return Ok(());
        };
        recovered("dispatched");
        let task = &claimed.task;
        info!(task = ?task.id, tool = %task.name, attempts = task.attempts, "a call is sent for its last owner");
        let id = claimed.task.id;
        let runner = Arc::clone(self);
        match Carrier::dispatched(
            runner,
            claimed,
            (custody, admittance),
            era,
            &request,
            Forwarded::default(),
        ) {
            Ok(carrier) => self.spawn(carrier.task_id(), carrier.run(), permit),
            Err(_unreadable) => self.abandon_by_id(id, Reason::OwnerLost).await,
        }
        Ok(())
    }

    /// Opens the exchange of a call that still runs. Dropped before it is held, the exchange leaves no trace
    /// at the server.
    fn adopt(&self, task: &Task, point: Option<String>, from: Forwarded) -> Option<Exchange> {
        self.upstream.adopt(*task.caller.as_bytes(), &point?, from)
    }

    /// Asks for the era of the server in a job of its own: the sweep must not wait for a server that is away,
    /// and comes back to the task.
    fn ask_era(self: &Arc<Self>) {
        let Ok(asking) = Arc::clone(&self.asking).try_acquire_owned() else {
            return;
        };
        let runner = Arc::clone(self);
        self.services.spawn(async move {
            let asked = runner.halt.run_until_cancelled(runner.upstream.ask_era());
            drop((asked.await, asking));
        });
    }

    async fn claim(&self, loaded: &Loaded, takeover: TakeoverMode) -> Option<Loaded> {
        let event = TaskEvent::Claimed {
            fence: loaded.task.fence,
            by: self.incarnation.clone(),
            reach: self.settings.reach.clone(),
            takeover,
        };
        match self.ledger.try_apply(loaded, event).await {
            Ok(Tried::Done(claimed, _)) => {
                hit(Point::ClaimAfter);
                Some(*claimed)
            }
            // The record changed since it was read: its owner lives, or another replica was first. A claim in
            // doubt may have been committed: then the reconcile of this replica ends the task.
            Ok(Tried::Conflict(_))
            | Err(ApplyError::Rejected(..) | ApplyError::Gone | ApplyError::Store(_)) => None,
        }
    }

    /// Commits that the server was notified that no client waits, or that no replica can notify it.
    pub(super) async fn note_told(&self, loaded: &Loaded) {
        let told = TaskEvent::Owner(loaded.task.fence, OwnerEvent::Told);
        // If the commit fails, the next sweep finds the task again.
        let _ = self.ledger.apply(loaded, told).await;
    }

    /// Returns `true` if this replica reaches the task's server.
    pub(super) fn is_within_reach(&self, reach: &Reach) -> bool {
        self.settings.exclusive_store || *reach == self.settings.reach
    }

    fn has_waited(&self, dead: &Dead) -> bool {
        let Liveness { now_ms, .. } = *self.liveness();
        let lease_ms = u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX);
        now_ms.saturating_sub(dead.since_ms) >= lease_ms.saturating_mul(2)
    }

    /// Returns `true` if another replica may carry on the calls with a log that this one leaves.
    pub fn others_carry_logs_on(&self) -> bool {
        let settings = &self.settings;
        let liveness = self.liveness();
        let living = liveness.living.as_ref();
        let is_other = |replica: &Incarnation| *replica != self.incarnation;
        // While it is unknown which replicas live, one is assumed: to end the call is final, and to leave it is not.
        settings.reach == Reach::Shared
            && !settings.exclusive_store
            && living.is_none_or(|living| living.iter().any(is_other))
    }

    /// Seals the point from which another replica can fetch the answer, for the record.
    pub(super) fn seal(&self, task: &Task, point: &str) -> Option<Box<str>> {
        let sealer = self.settings.sealer.as_ref()?;
        sealer.seal_text(&of_resume_point(task), point).ok()
    }

    fn unseal(&self, task: &Task) -> Option<String> {
        let sealer = self.settings.sealer.as_ref()?;
        sealer.open_text(&of_resume_point(task), &task.resume.as_ref()?.sealed)
    }
}

fn of_resume_point(task: &Task) -> Binding<'_> {
    Binding {
        kind: RESUME,
        id: task.id.as_bytes(),
        caller: task.caller.as_bytes(),
        number: 0,
    }
}

/// Counts a task of a lost owner that was handled.
fn recovered(outcome: &str) {
    let recoveries = &METRICS.tasks.recoveries;
    recoveries.with_label_values(&[outcome]).inc();
}
