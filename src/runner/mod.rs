//! WHO CARRIES A CALL: one tracked job a call, which outlives the client that made it.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch as watch_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::clock::Anchored;
use crate::mcp::error::{Failure, Reason};
use crate::mcp::version::Era;
use crate::room::{Place, Room};
use crate::store::StoreError;
use crate::store::ledger::{Ledger, Loaded, NotApplied};
use crate::store::notebook::Notebook;
use crate::store::seal::Sealer;
use crate::task::id::{Caller, Incarnation, TaskId};
use crate::task::machine::{Event, Rejected};
use crate::task::policy::{Limit, Plan, Rule, Rules};
use crate::task::state::{Digest, Reach, Task};
use crate::task::ticket::Ticket;
use crate::task::view;
use crate::upstream::Outgoing;
use crate::upstream::wrapped::Upstream;

mod alarm;
mod answer;
mod attended;
mod budget;
mod carried;
mod carrier;
pub mod claim;
mod elsewhere;
mod finish;
mod heartbeat;
mod leg;
mod outcome;
pub mod parked;
pub mod pauses;
mod recovery;
pub mod seat;
mod sweeper;
mod terms;
mod turn;
mod unsaved;
pub mod watch;

use budget::Budget;
use carried::Carried;
use carrier::Carrier;
use heartbeat::View;
use seat::Client;
use turn::{Full, Gates, Turn};
use unsaved::Unsaved;
use watch::Watches;

pub use answer::AnswerError;

/// Creates whose outcome the store did not tell; beyond it the oldest are left to the due index.
const IN_DOUBT_MAX: usize = 1024;

/// What the limits are for; other requests are answered beside them.
const TOOL_CALL: &str = "tools/call";

/// What is left of the grace period when calls are ended: for their last commits.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What the runner is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Calls under way at once; more are refused before anything is stored or sent.
    pub calls_max: usize,
    /// Where what calls ask with counts while they run.
    pub room: Arc<Room>,
    /// Tool calls at the server at once, whichever the tool.
    pub concurrency: Option<Limit>,
    /// How long this replica's lease runs without a heartbeat.
    pub lease: Duration,
    /// Nobody else can use the store: what it says of dead owners is true at once.
    pub exclusive_store: bool,
    /// The clock that follows the store's own, where the store has one.
    pub shared_clock: Option<Arc<Anchored>>,
    /// Who can get at the server that this replica wraps.
    pub reach: Reach,
    /// Without it no other process can carry a call on.
    pub sealer: Option<Sealer>,
}

/// Carries calls, and looks after the tasks of those who no longer can.
#[derive(Debug)]
pub struct Runner {
    ledger: Ledger,
    notes: Notebook,
    upstream: Arc<Upstream>,
    watches: Arc<Watches>,
    incarnation: Incarnation,
    rules: Arc<Rules>,
    settings: Settings,
    calls: TaskTracker,
    services: TaskTracker,
    /// Cancelled when the grace period is over: what still runs fails as `shutdown`.
    halt: CancellationToken,
    /// Cancelled when the drain begins: what still waits for its turn is left to others.
    draining: CancellationToken,
    permits: Arc<Semaphore>,
    gates: Gates,
    carried: Arc<Carried>,
    progress: Budget,
    lingering: Arc<Semaphore>,
    unsaved: Unsaved,
    in_doubt: Mutex<VecDeque<TaskId>>,
    /// Since when no command to the store failed or took too long.
    contact: Mutex<Option<Instant>>,
    view: watch_channel::Sender<View>,
    /// The era of the server is asked for by one at a time.
    asking: Arc<Semaphore>,
    /// Whether the store answered when it was last asked.
    store_answers: watch_channel::Sender<bool>,
}

/// One call as the downstream hands it over.
#[derive(Debug)]
pub struct Call {
    pub caller: Caller,
    pub era: Era,
    /// Whose words the client speaks. A legacy one answers questions while it waits.
    pub face: Era,
    pub outgoing: Outgoing,
    pub rule: Rule,
    pub plan: Plan,
    /// How the client hears that its call became a task.
    pub announce: Announce,
    /// The client's progress token, where it asked for progress.
    pub progress_token: Option<Box<RawValue>>,
    /// What a retry of this call must repeat, should it be parked with a question.
    pub digest: Digest,
    /// The server calls it safe to repeat, and is believed.
    pub repeatable: bool,
    /// The caller is somebody in particular, who can have the task listed (2025-11-25, Tasks).
    pub listed: bool,
    /// Of which session its client is, where its questions are answered to any replica.
    pub session: Option<[u8; 16]>,
}

/// How a client hears that its call became a task.
#[derive(Debug, Clone)]
pub enum Announce {
    /// By the task's handle.
    Task,
    /// By a ticket, as a plain result: it knows no tasks.
    Ticket(Ticket),
}

/// The official Python client refuses an event of more than 1 MiB. The rest is for what is around the
/// result.
const LARGE_EVENT: usize = (1 << 20) - 4096;

impl Announce {
    /// Whether the client is better served by this than by the result as an event. A client that asked
    /// for tasks fetches a large result in any case.
    fn is_better_than(&self, result: &RawValue) -> bool {
        let spares = match self {
            Self::Task => true,
            Self::Ticket(ticket) => !ticket.takes_large_events,
        };
        spares && result.get().len() > LARGE_EVENT
    }

    fn text(&self, task: &Task, now_ms: u64) -> String {
        match self {
            Self::Task => view::create_result(task, now_ms),
            Self::Ticket(ticket) => ticket.issued(task, now_ms),
        }
    }
}

/// A call's place among those under way, and that of what it asks with.
#[derive(Debug)]
struct Permit {
    _permit: OwnedSemaphorePermit,
    _params: Option<Place>,
}

impl Permit {
    fn with(self, params: Option<Place>) -> Self {
        Self {
            _params: params,
            ..self
        }
    }
}

/// Too many calls are under way.
#[derive(Debug)]
pub struct Busy;

/// Why a call was not begun. Nothing of it was stored or sent.
#[derive(Debug)]
pub enum NotBegun {
    Busy,
    QueueFull,
    /// The caller has as many tasks as it may.
    Quota,
}

impl NotBegun {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Busy => Reason::Busy,
            Self::QueueFull => Reason::QueueFull,
            Self::Quota => Reason::Quota,
        }
    }
}

impl From<Busy> for NotBegun {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<Full> for NotBegun {
    fn from(_: Full) -> Self {
        Self::QueueFull
    }
}

impl Runner {
    pub fn new(
        ledger: Ledger,
        notes: Notebook,
        upstream: Arc<Upstream>,
        incarnation: Incarnation,
        rules: Arc<Rules>,
        settings: Settings,
    ) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            notes,
            upstream,
            watches: Arc::default(),
            incarnation,
            gates: Gates::new(Arc::clone(&rules), settings.concurrency),
            rules,
            draining: CancellationToken::new(),
            permits: Arc::new(Semaphore::new(settings.calls_max)),
            settings,
            calls: TaskTracker::new(),
            services: TaskTracker::new(),
            halt: CancellationToken::new(),
            carried: Arc::default(),
            progress: Budget::new(),
            lingering: Arc::new(Semaphore::new(attended::LINGERING_MAX)),
            unsaved: Unsaved::new(),
            in_doubt: Mutex::default(),
            contact: Mutex::default(),
            view: watch_channel::Sender::new(View::default()),
            asking: Arc::new(Semaphore::new(1)),
            store_answers: watch_channel::Sender::new(true),
        })
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// Seals what only replicas of this service may read; `None` without a key.
    pub fn sealer(&self) -> Option<&Sealer> {
        self.settings.sealer.as_ref()
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
        let follower = Arc::clone(self);
        self.services.spawn(async move {
            follower
                .halt
                .run_until_cancelled(follower.watches.follow(changes))
                .await;
        });
        self.first_sweep().await?;
        let (heart, sweeper) = (Arc::clone(self), Arc::clone(self));
        self.services
            .spawn(async move { heart.beat_until_halted().await });
        self.services
            .spawn(async move { sweeper.sweep_until_halted().await });
        Ok(())
    }

    /// Begins a call. The job runs until the call has ended, whatever becomes of the client.
    pub fn call(self: &Arc<Self>, call: Call) -> Result<Client, NotBegun> {
        let (permit, turn) = self.admit(&call)?;
        let (seat, client) = seat::seat();
        let carrier = Carrier::for_client(Arc::clone(self), call, Some(seat), turn);
        self.spawn(carrier, permit);
        Ok(client)
    }

    /// Makes a task of a call that a modern server answered with questions, which are the task's from
    /// here on. The answer says so as the call announces it, and the task has an id; where the store does
    /// not take it, the answer is the server's own result again.
    pub fn ask_in_task(
        self: &Arc<Self>,
        call: Call,
        asked: Box<RawValue>,
    ) -> Result<(Client, Arc<OnceLock<TaskId>>), NotBegun> {
        let permit = self.permit()?;
        let (seat, client) = seat::seat();
        // Nothing of it is at the server before it is answered.
        let turn = Turn::free();
        let carrier = Carrier::for_client(Arc::clone(self), call, Some(seat), turn);
        let task = carrier.carried();
        self.attend(async move {
            carrier.ask_in_task(asked).await;
            drop(permit);
        });
        Ok((client, task))
    }

    /// Room for one more call.
    fn admit(&self, call: &Call) -> Result<(Permit, Turn), NotBegun> {
        let permit = self
            .permit()?
            .with(self.settings.room.count(call.outgoing.params.len()));
        let tool = call.outgoing.name.as_deref().unwrap_or_default();
        let turn = match &*call.outgoing.method {
            TOOL_CALL => self.gates.enter(tool)?,
            _ => Turn::free(),
        };
        Ok((permit, turn))
    }

    /// Whether calls of this tool may have to wait for their turn.
    pub fn limits(&self, tool: &str) -> bool {
        self.gates.limits(tool)
    }

    /// Runs what a drain waits for as it does for calls, and which ends soon after [`Self::halt`].
    pub fn attend(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.calls.spawn(job);
    }

    /// Cancelled shortly before the grace period of a drain is over.
    pub fn halt(&self) -> &CancellationToken {
        &self.halt
    }

    /// No call begins here any more.
    pub fn refuse(&self) {
        self.permits.close();
    }

    /// Waits for the calls under way, after [`Self::refuse`]. Shortly before `grace` is over, what
    /// another replica can carry on is left to it, and the rest fails as `shutdown`.
    pub async fn drain(&self, grace: Duration) {
        self.calls.close();
        self.draining.cancel();
        let last = LAST_WORDS.min(grace / 4);
        // Either all ended, or the rest is told to.
        let _ = tokio::time::timeout(grace.saturating_sub(last), self.calls.wait()).await;
        self.halt.cancel();
        // Whoever cannot reach the store or the server by then is found by others.
        let _ = tokio::time::timeout(last * 2 / 3, self.calls.wait()).await;
        self.services.close();
        let _ = tokio::time::timeout(last / 6, self.services.wait()).await;
        let _ = tokio::time::timeout(last / 6, self.part()).await;
    }

    /// Stops the call if it is carried here and belongs to this caller: for a client that cancels
    /// while the store is away. It is committed when the store is back.
    pub fn stop(&self, id: TaskId, caller: &Caller) {
        self.carried.stop(id, caller);
    }

    /// Takes this replica off the living. What is left in its index others may look at at once.
    async fn part(&self) -> Result<(), StoreError> {
        let store = self.ledger.store();
        if store.indexed(&self.incarnation).await?.is_empty() {
            store.retire(&self.incarnation).await
        } else {
            let left = store.beat(Some(&self.incarnation), Duration::ZERO).await;
            left.map(drop)
        }
    }

    fn permit(&self) -> Result<Permit, Busy> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| Busy).map(|permit| Permit {
            _permit: permit,
            _params: None,
        })
    }

    fn spawn(self: &Arc<Self>, carrier: Carrier, permit: Permit) {
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
        if let Ok(Some(loaded)) = self.ledger.load(id).await
            && loaded.task.owner.as_ref() == Some(&self.incarnation)
        {
            self.abandon(&loaded, reason).await;
        }
    }

    /// Ends an open task that nobody can carry on; a terminal one that only waits to be told of
    /// at the server leaves the index.
    async fn abandon(&self, loaded: &Loaded, reason: Reason) {
        let event = Event::Abandoned {
            fence: loaded.task.fence,
            failure: loaded.task.failure(reason),
        };
        self.settle(loaded, event, reason).await;
    }

    async fn settle(&self, loaded: &Loaded, event: Event, reason: Reason) {
        match self.ledger.apply(loaded, event).await {
            Ok(_) => info!(task = ?loaded.task.id, reason = reason.word(), "task ended"),
            Err(NotApplied::Rejected(Rejected::Ended, stands)) if stands.task.must_tell => {
                self.note_told(&stands).await;
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
