//! Carries calls: one tracked job for each call, which outlives the client that made the call.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::TryAcquireError;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

use crate::mcp::error::Reason;
use crate::sharing::resizable::ResizablePermit;
use crate::sharing::room::BufferShare;
use crate::sharing::shares::Share;
use crate::store::StoreError;
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::id::{Caller, TaskId};
use crate::task::machine::{Rejected, TaskEvent};
use crate::telemetry::counted::Counted;
use crate::telemetry::limits::{self, LimitHit};

mod admission;
mod alarm;
mod answer;
mod budget;
mod call;
mod call_claim;
pub mod call_log;
mod carried;
mod carrier;
pub mod claim;
pub mod client_note;
mod client_share;
mod custody;
mod due;
mod elsewhere;
mod finish;
mod follower;
pub mod given_up;
pub mod given_up_claims;
mod heartbeat;
mod history;
mod indexed;
pub mod learned;
mod leg;
mod liveness;
mod notices;
mod outcome;
pub mod pauses;
mod presence;
mod recovery;
mod report;
mod request_state;
pub mod rerun;
pub mod responder;
mod result_form;
pub mod retry;
pub mod same_calls;
pub mod server;
mod state;
mod subscriptions;
mod sweeper;
mod taken_up;
pub mod told;
mod undelivered;
mod unsaved;
pub mod value_watch;
mod waiting;
pub mod watch;

use admission::{Admittance, NotAdmitted};
use carrier::Carrier;
use report::tool_of;
use responder::CallSubscriber;
use waiting::{WaitTerms, WaitingClient};

pub use answer::AnswerError;
pub use call::{AdmitError, Announce, Busy, CallClient, CallSpec, CallTerms};
pub use state::{Runner, RunnerSettings};

/// The rest of the grace period when calls are ended: time for their last commits.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Returns the time before the end of a drain at which the calls that still run are ended.
pub fn last_words(grace: Duration) -> Duration {
    LAST_WORDS.min(grace / 4)
}

/// The permit of a call under way, and the room of its params.
#[derive(Debug)]
struct CallPermit {
    _permit: ResizablePermit,
    _params: Option<BufferShare>,
    _share: Option<Share>,
    _running: Counted,
}

impl CallPermit {
    fn with(self, params: Option<BufferShare>, share: Option<Share>) -> Self {
        Self {
            _params: params,
            _share: share,
            ..self
        }
    }
}

impl Runner {
    /// Starts the jobs that run for as long as the process: the follower of the change log, and the sweeper.
    /// Call it once, before the first call of a client.
    pub async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        // The change log is followed before the first record is read, so that no change falls in between.
        self.follow_changes();
        self.first_sweep().await?;
        self.keep_living();
        Ok(())
    }

    /// Starts the same jobs. If the store does not answer, its outage begins with the process: what the first sweep
    /// would find is found by the first sweep after it.
    pub async fn start_without_store(self: &Arc<Self>) {
        self.follow_changes();
        if let Err(error) = self.first_sweep().await {
            warn!(%error, "the store does not answer; no call becomes a task until it answers");
            self.has_no_store();
            self.contact_broke();
        }
        self.keep_living();
    }

    /// Notes that the store does not answer. Without [`Self::start`] this stays so.
    pub fn has_no_store(&self) {
        self.store_answers.send_replace(false);
    }

    fn follow_changes(self: &Arc<Self>) {
        let changes = self.ledger.changes();
        let follower = Arc::clone(self);
        self.services.spawn(async move {
            follower
                .halt
                .run_until_cancelled(follower.watches.follow(changes))
                .await;
        });
    }

    fn keep_living(self: &Arc<Self>) {
        // The heartbeat is a job of its own, because a long sweep must not let the lease run out.
        let (heart, sweeper) = (Arc::clone(self), Arc::clone(self));
        self.services.spawn(Arc::clone(self).share_learned());
        self.services.spawn(Arc::clone(self).watch_given_up());
        self.services.spawn(Arc::clone(self).follow_pauses());
        self.services.spawn(Arc::clone(self).keep_history());
        self.services
            .spawn(async move { heart.beat_until_halted().await });
        self.services
            .spawn(async move { sweeper.sweep_until_halted().await });
    }

    /// Begins a call. The job runs until the call has ended, even if the client goes away.
    pub fn call(self: &Arc<Self>, call: CallSpec) -> Result<CallSubscriber, AdmitError> {
        let (permit, admittance) = self.admit(&call)?;
        let terms = WaitTerms::of(&call, self.upstream.start_allowance());
        let (client, subscriber) = WaitingClient::of_call(terms);
        let carrier = Carrier::for_client(Arc::clone(self), call, client, admittance);
        self.spawn(carrier.task_id(), carrier.run(), permit);
        Ok(subscriber)
    }

    /// Makes room for one more call.
    fn admit(&self, call: &CallSpec) -> Result<(CallPermit, Admittance), AdmitError> {
        let admitted = self.try_admit(call);
        if let Err(refused) = &admitted {
            report::refused(tool_of(&call.outgoing), refused.failure().reason);
        }
        admitted
    }

    fn try_admit(&self, call: &CallSpec) -> Result<(CallPermit, Admittance), AdmitError> {
        let caller = Caller::from_bytes(call.outgoing.caller);
        // If a later step refuses the call, the drop gives back what the steps before it took.
        let share = match &self.shares {
            Some(shares) => Some(shares.take(caller, 1).ok_or_else(|| {
                limits::refused(LimitHit::CallsPerCaller);
                Busy
            })?),
            None => None,
        };
        let params = self.settings.room.count(call.outgoing.params.len());
        let permit = self.permit()?.with(params, share);
        let admittance = match tool_of(&call.outgoing) {
            Some(tool) => self.enter(tool, call)?,
            None => Admittance::unlimited(),
        };
        Ok((permit, admittance))
    }

    /// Asks for the turn of a new call.
    fn enter(&self, tool: &str, call: &CallSpec) -> Result<Admittance, NotAdmitted> {
        let (admission, now_ms) = (&self.admission, self.ledger.now_ms());
        let ends_ms = now_ms.saturating_add(call.terms.rule.max_duration_ms);
        let (era, outgoing) = (call.terms.era, &call.outgoing);
        let goes_on = || leg::goes_on(era, outgoing);
        let limits = admission.enter(tool, ends_ms, goes_on)?;
        let pausing = || (!goes_on()).then(|| admission.pausing_of(tool));
        Ok(limits.with_seat(&self.upstream, era, outgoing, pausing))
    }

    /// Refuses every new call from now on.
    pub fn refuse(&self) {
        self.permits.close();
    }

    /// Waits for the calls under way, after [`Self::refuse`], and for those that pass: one that takes long becomes a call that
    /// is under way here. Shortly before `grace` is over, calls that
    /// another replica can carry on are left to that replica, and the other calls fail as `shutdown`.
    pub async fn drain(&self, grace: Duration, passing: &TaskTracker) {
        // Without this the `wait` below would never resolve. A closed tracker still takes new jobs.
        self.calls.close();
        self.draining.cancel();
        let last = last_words(grace);
        let ended = async {
            while !(passing.is_empty() && self.calls.is_empty()) {
                passing.wait().await;
                self.calls.wait().await;
            }
        };
        // Either all calls ended, or the rest must end now.
        let _ = tokio::time::timeout(grace.saturating_sub(last), ended).await;
        self.halt.cancel();
        // Other replicas find the calls that could not reach the store or the server by then.
        let _ = tokio::time::timeout(last * 2 / 3, self.calls.wait()).await;
        self.services.close();
        let _ = tokio::time::timeout(last / 6, self.services.wait()).await;
        // This comes last: other replicas take over the tasks that are left as soon as the lease has ended.
        let _ = tokio::time::timeout(last / 6, self.leave_living()).await;
    }

    /// Removes this replica from the list of living replicas, so that other replicas look at the rest of its
    /// index at once.
    async fn leave_living(&self) -> Result<(), StoreError> {
        let store = self.ledger.store();
        // With tasks left, the entry must stay, because it leads other replicas to the index. Only its lease ends.
        if store.indexed(&self.incarnation).await?.is_empty() {
            store.retire(&self.incarnation).await
        } else {
            let left = store.beat(Some(&self.incarnation), Duration::ZERO).await;
            left.map(drop)
        }
    }

    fn permit(&self) -> Result<CallPermit, Busy> {
        let permit = self.permits.try_take().map_err(|refused| {
            limits::refused(match refused {
                TryAcquireError::NoPermits => LimitHit::Calls,
                TryAcquireError::Closed => LimitHit::Drain,
            });
            Busy
        });
        permit.map(|permit| CallPermit {
            _permit: permit,
            _params: None,
            _share: None,
            _running: Counted::call(),
        })
    }

    /// Spawns the job of a carrier. `task_id` names the record of the call, as soon as there is one.
    fn spawn(
        self: &Arc<Self>,
        task_id: Arc<OnceLock<TaskId>>,
        job: impl Future<Output = ()> + Send + 'static,
        permit: CallPermit,
    ) {
        let runner = Arc::clone(self);
        // Boxed, because an async block has room for what it took and again for what it awaits.
        let job = Box::pin(job);
        self.calls.spawn(async move {
            if AssertUnwindSafe(job).catch_unwind().await.is_err() {
                error!("a call panicked; its task is ended as failed");
                if let Some(id) = task_id.get() {
                    // Boxed, because only a panic needs this future, and the job of every call would have room for it.
                    Box::pin(runner.abandon_by_id(*id, Reason::OwnerLost)).await;
                }
            }
            drop(permit);
        });
    }

    async fn abandon_by_id(&self, id: TaskId, reason: Reason) {
        // If the store does not answer, the reconcile finds the task later, because no carrier has it any more.
        if let Ok(Some(loaded)) = self.ledger.load(id).await
            && loaded.task.owner.as_ref() == Some(&self.incarnation)
        {
            self.abandon(&loaded, reason).await;
        }
    }

    /// Ends an open task that no replica can carry on. A task that has ended, and waits only until the server is
    /// notified, leaves the index.
    async fn abandon(&self, loaded: &Loaded, reason: Reason) {
        let event = TaskEvent::Abandoned {
            fence: loaded.task.fence,
            failure: loaded.task.failure(reason),
        };
        self.settle(loaded, event).await;
    }

    async fn settle(&self, loaded: &Loaded, event: TaskEvent) {
        // Where nothing was applied, another replica ended the task, or the next sweep finds the task again.
        if let Err(ApplyError::Rejected(Rejected::Ended, stands)) =
            self.ledger.apply(loaded, event).await
            && stands.task.must_tell
        {
            self.note_told(&stands).await;
        }
    }
}
