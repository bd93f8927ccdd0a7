//! Takes over what a lost owner left behind: claimed by a commit, so that of two finders one wins.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::timeout;
use tracing::info;

use super::carrier::{Carrier, Charge};
use super::living::View;
use super::state::Runner;
use super::sweeper::Look;
use crate::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason};
use crate::store::ledger::{Loaded, NotApplied, Tried};
use crate::store::seal::SealedField;
use crate::store::{Dead, StoreError};
use crate::task::id::TaskId;
use crate::task::machine::{Event, OwnerEvent, Takeover};
use crate::task::recovery::{Finder, Verdict, decide};
use crate::task::state::{Reach, Task};
use crate::upstream::{Exchange, Forwarded};

/// Tasks of one lost owner that are looked at together.
const TOGETHER: usize = 16;

/// How long the server may take to hear that nobody waits for a lost owner's call.
const TELL_PATIENCE: Duration = Duration::from_secs(2);

/// Under which name a resume point is sealed.
const RESUME: &str = "resume";

impl Runner {
    /// Looks at everything that a lost owner must still do, then forgets the owner if nothing is
    /// left. What can be done better later stays.
    pub(super) async fn recover(self: &Arc<Self>, dead: &Dead) -> Result<(), StoreError> {
        let store = self.ledger.store();
        let left_behind = store.indexed(&dead.incarnation).await?;
        let recovered: Vec<Result<(), StoreError>> = stream::iter(left_behind)
            .map(|id| self.recover_task(id, dead))
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        recovered.into_iter().collect::<Result<(), StoreError>>()?;
        if store.indexed(&dead.incarnation).await?.is_empty() {
            store.retire(&dead.incarnation).await?;
        }
        Ok(())
    }

    async fn recover_task(self: &Arc<Self>, id: TaskId, dead: &Dead) -> Result<(), StoreError> {
        // A frozen owner may have come back since.
        if !self.view().lost(&dead.incarnation) {
            return Ok(());
        }
        let loaded = match self.look(id).await? {
            Look::Record(loaded) => *loaded,
            Look::Newer => return Ok(()),
            // Left in the index, its owner would never be forgotten.
            Look::Gone | Look::Unreadable => {
                let store = self.ledger.store();
                return store.forget(id, Some(&dead.incarnation)).await;
            }
        };
        let task = &loaded.task;
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
            Verdict::Leave | Verdict::Wait => {}
            Verdict::Resume => self.resume(loaded, point).await,
            Verdict::Dispatch => self.dispatch_again(loaded).await?,
            Verdict::Tell => {
                if let Some(exchange) = self.adopt(task, point) {
                    // The sweep must go on.
                    let _ = timeout(TELL_PATIENCE, exchange.control.cancel()).await;
                    exchange.control.hold();
                }
                self.note_told(&loaded).await;
            }
            Verdict::Untellable => self.note_told(&loaded).await,
            Verdict::Fail(failure) => self.fail_lost(&loaded, failure).await,
        }
        Ok(())
    }

    /// A record that changed since it was read has an owner that lives, or a better finder.
    async fn fail_lost(&self, loaded: &Loaded, failure: Failure) {
        let event = Event::Abandoned {
            fence: loaded.task.fence,
            failure,
        };
        if let Ok(Tried::Done(ended, _)) = self.ledger.try_apply(loaded, event).await {
            info!(task = ?ended.task.id, reason = failure.reason.word(), "task ended");
        }
    }

    /// Fetches the answer of a call that still runs at the server.
    async fn resume(self: &Arc<Self>, loaded: Loaded, point: Option<String>) {
        // Without room here another replica may have some.
        let Ok(permit) = self.permit() else { return };
        let Some(exchange) = self.adopt(&loaded.task, point) else {
            return self.abandon(&loaded, Reason::OwnerLost).await;
        };
        let charge = Charge::of(self, &loaded.task);
        // Otherwise somebody else carries it, on the same session, which is not ours to close.
        if let Some(claimed) = self.claim(&loaded, Takeover::Resume).await {
            exchange.control.hold();
            info!(task = ?claimed.task.id, "a call is carried on for its lost owner");
            let runner = Arc::clone(self);
            self.spawn(Carrier::adopted(runner, claimed, charge, exchange), permit);
        }
    }

    /// Sends a call for the first time, or again where that is safe.
    pub(super) async fn dispatch_again(self: &Arc<Self>, loaded: Loaded) -> Result<(), StoreError> {
        let Ok(permit) = self.permit() else {
            return Ok(());
        };
        let Some(era) = self.upstream.known_era() else {
            self.ask_era();
            return Ok(());
        };
        let Some(request) = self.ledger.load_request(loaded.task.id).await? else {
            self.abandon(&loaded, Reason::OwnerLost).await;
            return Ok(());
        };
        let charge = Charge::of(self, &loaded.task);
        let turn = self.gates.queue(&loaded.task.name);
        let takeover = if turn.waits() {
            Takeover::Queue
        } else {
            Takeover::Dispatch
        };
        let Some(claimed) = self.claim(&loaded, takeover).await else {
            return Ok(());
        };
        info!(task = ?claimed.task.id, attempts = claimed.task.attempts, "a call is sent for its last owner");
        let id = claimed.task.id;
        let runner = Arc::clone(self);
        match Carrier::dispatched(
            runner,
            claimed,
            (charge, turn),
            era,
            &request,
            Forwarded::default(),
        ) {
            Ok(carrier) => self.spawn(carrier, permit),
            Err(_unreadable) => self.abandon_by_id(id, Reason::OwnerLost).await,
        }
        Ok(())
    }

    /// Dropped before it is held, it leaves no trace at the server.
    fn adopt(&self, task: &Task, point: Option<String>) -> Option<Exchange> {
        self.upstream.adopt(*task.caller.as_bytes(), &point?)
    }

    /// Beside the sweep, which must not wait for a server that is away: it comes back to this task.
    fn ask_era(self: &Arc<Self>) {
        let Ok(asking) = Arc::clone(&self.asking).try_acquire_owned() else {
            return;
        };
        let runner = Arc::clone(self);
        self.services.spawn(async move {
            let asked = runner.halt.run_until_cancelled(runner.upstream.era(None));
            drop((asked.await, asking));
        });
    }

    async fn claim(&self, loaded: &Loaded, takeover: Takeover) -> Option<Loaded> {
        let event = Event::Claimed {
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
            // It changed since it was read: its owner lives, or somebody else was first. In doubt,
            // the claim may stand: then the reconcile of this replica ends it.
            Ok(Tried::Conflict(_))
            | Err(NotApplied::Rejected(..) | NotApplied::Gone | NotApplied::Store(_)) => None,
        }
    }

    /// The server was told that nobody waits, or nobody can tell it.
    pub(super) async fn note_told(&self, loaded: &Loaded) {
        let told = Event::Owner(loaded.task.fence, OwnerEvent::Told);
        // Found again by the next sweep.
        let _ = self.ledger.apply(loaded, told).await;
    }

    /// Whether the task's server is one that this replica can get at.
    pub(super) fn is_within_reach(&self, reach: &Reach) -> bool {
        self.settings.exclusive_store || *reach == self.settings.reach
    }

    fn has_waited(&self, dead: &Dead) -> bool {
        let View { now_ms, .. } = *self.view();
        let lease_ms = u64::try_from(self.settings.lease.as_millis()).unwrap_or(u64::MAX);
        now_ms.saturating_sub(dead.since_ms) >= lease_ms.saturating_mul(2)
    }

    /// Whether somebody else may carry on at the server what is left here.
    pub fn others_carry_on(&self) -> bool {
        let settings = &self.settings;
        settings.reach == Reach::Shared && !settings.exclusive_store && !self.is_alone()
    }

    /// Where the call can be carried on, for the record.
    pub(super) fn seal(&self, task: &Task, point: &str) -> Option<Box<str>> {
        let place = SealedField {
            task: task.id,
            caller: &task.caller,
            field: RESUME,
        };
        self.settings.sealer.as_ref()?.seal(place, point).ok()
    }

    fn unseal(&self, task: &Task) -> Option<String> {
        let place = SealedField {
            task: task.id,
            caller: &task.caller,
            field: RESUME,
        };
        let sealer = self.settings.sealer.as_ref()?;
        sealer.open(place, task.resume.as_deref()?)
    }
}
