//! WHO CARRIES A CALL: one tracked job a call, which outlives the client that made it.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch as watch_channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::clock::Anchored;
use crate::mcp::error::{Failure, Reason};
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::store::ledger::{Ledger, Loaded, NotApplied};
use crate::task::id::{Caller, Incarnation, TaskId};
use crate::task::machine::{Effect, Event};
use crate::task::policy::{Plan, Rule, Rules};
use crate::task::state::Digest;
use crate::upstream::Outgoing;
use crate::upstream::wrapped::Upstream;

mod carrier;
mod leg;
mod outcome;
pub mod parked;
pub mod seat;
mod sweeper;
pub mod watch;

use carrier::Carrier;
use seat::Client;
use watch::Watches;

/// Creates whose outcome the store did not tell; beyond it the oldest are left to the due index.
const IN_DOUBT_MAX: usize = 1024;

/// What the runner is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Calls under way at once; more are refused before anything is stored or sent.
    pub calls_max: usize,
    /// How long this replica's lease runs without a heartbeat.
    pub lease: Duration,
    /// Nobody else can use the store: what it says of dead owners is true at once.
    pub exclusive_store: bool,
    /// The clock that follows the store's own, where the store has one.
    pub shared_clock: Option<Arc<Anchored>>,
}

/// Carries calls, and looks after the tasks of those who no longer can.
#[derive(Debug)]
pub struct Runner {
    ledger: Ledger,
    upstream: Arc<Upstream>,
    watches: Arc<Watches>,
    incarnation: Incarnation,
    rules: Arc<Rules>,
    settings: Settings,
    calls: TaskTracker,
    services: TaskTracker,
    /// Cancelled when the grace period is over: what still runs fails as `shutdown`.
    halt: CancellationToken,
    permits: Arc<Semaphore>,
    in_doubt: Mutex<VecDeque<TaskId>>,
    /// Whether the store answered when it was last asked.
    store_answers: watch_channel::Sender<bool>,
}

/// One call as the downstream hands it over.
#[derive(Debug)]
pub struct Call {
    pub caller: Caller,
    pub era: Era,
    pub outgoing: Outgoing,
    pub rule: Rule,
    pub plan: Plan,
    /// The client's progress token, where it asked for progress.
    pub progress_token: Option<Box<RawValue>>,
    /// What a retry of this call must repeat, should it be parked with a question.
    pub digest: Digest,
}

/// Too many calls are under way.
#[derive(Debug, thiserror::Error)]
#[error("too many calls are under way")]
pub struct Busy;

impl Runner {
    pub fn new(
        ledger: Ledger,
        upstream: Arc<Upstream>,
        incarnation: Incarnation,
        rules: Arc<Rules>,
        settings: Settings,
    ) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            upstream,
            watches: Arc::default(),
            incarnation,
            rules,
            permits: Arc::new(Semaphore::new(settings.calls_max)),
            settings,
            calls: TaskTracker::new(),
            services: TaskTracker::new(),
            halt: CancellationToken::new(),
            in_doubt: Mutex::default(),
            store_answers: watch_channel::Sender::new(true),
        })
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    pub fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// Whether the store answered the last heartbeat, and each change of that.
    pub fn store_answers(&self) -> watch_channel::Receiver<bool> {
        self.store_answers.subscribe()
    }

    /// Starts what runs for as long as the process does: the follower of the change log and the
    /// sweeper. Call once, before the first call.
    pub async fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        let changes = self.ledger.changes();
        let (follower, sweeper) = (Arc::clone(self), Arc::clone(self));
        self.services.spawn(async move {
            follower
                .halt
                .run_until_cancelled(follower.watches.follow(changes))
                .await;
        });
        self.first_sweep().await?;
        self.services
            .spawn(async move { sweeper.sweep_until_halted().await });
        Ok(())
    }

    /// Begins a call. The job runs until the call has ended, whatever becomes of the client.
    pub fn call(self: &Arc<Self>, call: Call) -> Result<Client, Busy> {
        let permit = self.permit()?;
        let (seat, client) = seat::seat();
        let carrier = Carrier::for_client(Arc::clone(self), call, seat);
        self.spawn(carrier, permit);
        Ok(client)
    }

    /// Does what a committed step asks of whoever committed it. Other effects are the owner's,
    /// who sees the change in the log.
    pub async fn perform(
        self: &Arc<Self>,
        effect: Option<Effect>,
        loaded: Loaded,
        credentials: Option<hyper::header::HeaderValue>,
    ) {
        if effect != Some(Effect::Dispatch) {
            return;
        }
        let carrier = Carrier::for_next_leg(Arc::clone(self), loaded.clone(), credentials).await;
        match (carrier, self.permit()) {
            (Ok(carrier), Ok(permit)) => self.spawn(carrier, permit),
            // Nothing of this leg was sent.
            _ => self.abandon(&loaded, Reason::StoreLost).await,
        }
    }

    /// Waits for the calls under way, at most `grace`; what is left then fails as `shutdown`.
    pub async fn drain(&self, grace: Duration) {
        self.permits.close();
        self.calls.close();
        // Either all ended, or the rest is told to.
        let _ = tokio::time::timeout(grace, self.calls.wait()).await;
        self.halt.cancel();
        self.calls.wait().await;
        self.services.close();
        self.services.wait().await;
        let _ = self.ledger.store().retire(&self.incarnation).await;
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, Busy> {
        Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| Busy)
    }

    fn spawn(self: &Arc<Self>, carrier: Carrier, permit: OwnedSemaphorePermit) {
        let runner = Arc::clone(self);
        let carried: Arc<OnceLock<TaskId>> = carrier.carried();
        self.calls.spawn(async move {
            if AssertUnwindSafe(carrier.run())
                .catch_unwind()
                .await
                .is_err()
            {
                error!("a call panicked; its task is ended as failed");
                if let Some(id) = carried.get() {
                    runner.abandon_by_id(*id, Reason::OwnerLost).await;
                }
            }
            drop(permit);
        });
    }

    /// Remembers a create that may have happened although its caller was refused.
    fn doubt(&self, id: TaskId) {
        let mut in_doubt = self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner);
        if in_doubt.len() == IN_DOUBT_MAX {
            in_doubt.pop_front();
        }
        in_doubt.push_back(id);
    }

    async fn abandon_by_id(&self, id: TaskId, reason: Reason) {
        if let Ok(Some(loaded)) = self.ledger.load(id).await {
            self.abandon(&loaded, reason).await;
        }
    }

    /// Ends an open task that nobody can carry on; a terminal one that only waits to be told of
    /// at the server leaves the index.
    async fn abandon(&self, loaded: &Loaded, reason: Reason) {
        let event = Event::Abandoned(loaded.task.failure(reason));
        self.settle(loaded, event, reason).await;
    }

    async fn settle(&self, loaded: &Loaded, event: Event, reason: Reason) {
        match self.ledger.apply(loaded, event).await {
            Ok(_) => info!(task = ?loaded.task.id, reason = reason.word(), "task ended"),
            Err(NotApplied::Rejected(_, stands)) if stands.task.must_tell => {
                let told = Event::Owner(stands.task.fence, crate::task::machine::OwnerEvent::Told);
                let _ = self.ledger.apply(&stands, told).await;
            }
            // Done by somebody else, or found again by the next sweep.
            Err(NotApplied::Rejected(..) | NotApplied::Gone | NotApplied::Store(_)) => {}
        }
    }
}

/// Nothing was sent, so the client may repeat the call.
pub(crate) fn not_sent(reason: Reason) -> Failure {
    Failure::new(reason, crate::mcp::error::SideEffect::None)
}
