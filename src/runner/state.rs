//! The state of the runner, which all of its parts share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch as watch_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::Admission;
use super::budget::CommitBudget;
use super::carried::CarriedTasks;
use super::given_up_claims::GivenUpClaims;
use super::learned::memory::Learned;
use super::liveness::Liveness;
use super::same_calls::SameCalls;
use super::server::WrappedServer;
use super::taken_up::TakenUp;
use super::told::ToldStates;
use super::unsaved::Unsaved;
use super::watch::Watches;
use crate::base::clock::Anchored;
use crate::base::limit_fill::{CALLS, CALLS_PER_CALLER};
use crate::base::lock::Mutex;
use crate::jobs::shared::SharedJobCalls;
use crate::sharing::resizable::ResizableSemaphore;
use crate::sharing::room::BufferBudget;
use crate::sharing::shares::Shares;
use crate::store::key_value::KeyValue;
use crate::store::ledger::Ledger;
use crate::store::seal::Sealer;
use crate::store::subscriptions::SubscriptionStore;
use crate::task::cancelled_by::CancelledBy;
use crate::task::id::{Caller, Incarnation, TaskId};
use crate::task::notify_rules::NotifyRules;
use crate::task::policy::Rules;
use crate::task::polling::PollTerms;
use crate::task::state::{Reach, Task};
use crate::task::view;

/// The most creates in doubt that are remembered. Beyond it the oldest are forgotten, and the due index leads
/// to their records.
const IN_DOUBT_MAX: usize = 1024;

/// The settings of the runner.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "settings: each is one of its own"
)]
pub struct RunnerSettings {
    /// The most calls under way at once. Further ones are refused before anything is stored or sent.
    pub calls_max: usize,
    /// The maximum number of these calls for one caller. `None`: callers cannot be distinguished with certainty.
    pub calls_per_caller: Option<usize>,
    /// The room in which the params of running calls count.
    pub room: Arc<BufferBudget>,
    /// The time that the lease of this replica runs without a heartbeat.
    pub lease: Duration,
    /// `true` if no other process can use the store. Then an owner that the store lists as dead is dead, without a
    /// waiting time.
    pub exclusive_store: bool,
    /// The clock that follows the store's own clock, if the store has one.
    pub shared_clock: Option<Arc<Anchored>>,
    /// The replicas that reach the server that this replica wraps.
    pub reach: Reach,
    /// The server gets clients' own credentials, and a client with a renewed credential is the same caller.
    pub renews_credentials: bool,
    /// Seals resume points. Without it no other process can carry a call on.
    pub sealer: Option<Sealer>,
    /// The receivers that are notified of the states of tasks.
    pub notify: NotifyRules,
    /// The requests of all calls are stored with their tasks, for operators to read and to run again. Else only those that
    /// raincheck may send again by itself.
    pub keeps_requests: bool,
    /// Clients can subscribe webhooks to the states of their tasks.
    pub has_subscriptions: bool,
}

/// Carries calls, and looks after the tasks of lost owners.
#[derive(Debug)]
pub struct Runner {
    pub(super) ledger: Ledger,
    pub(super) kv: KeyValue,
    /// The subscriptions of clients. `None`: clients cannot subscribe.
    pub(super) subscriptions: Option<SubscriptionStore>,
    pub(super) upstream: Arc<dyn WrappedServer>,
    pub(super) watches: Arc<Watches>,
    pub(super) told: ToldStates,
    pub(super) learned: Learned,
    pub(super) job_calls: SharedJobCalls,
    pub(super) given_up: Arc<GivenUpClaims>,
    /// The calls of modern clients that can be told apart.
    pub(super) same_calls: Arc<SameCalls>,
    pub(super) incarnation: Incarnation,
    pub(super) settings: RunnerSettings,
    pub(super) calls: TaskTracker,
    pub(super) services: TaskTracker,
    pub(super) taken_up: TakenUp,
    /// Cancelled when the grace period is over: a call that still runs fails as `shutdown`.
    pub(super) halt: CancellationToken,
    /// Cancelled when the drain begins: calls that wait for their turn are left to other replicas.
    pub(super) draining: CancellationToken,
    pub(super) permits: Arc<ResizableSemaphore>,
    /// The calls under way of each caller.
    pub(super) shares: Option<Arc<Shares>>,
    pub(super) admission: Admission,
    pub(super) carried: Arc<CarriedTasks>,
    pub(super) progress: CommitBudget,
    /// Calls without a client are watched until their window is over, as many as there may be calls. Further calls run on
    /// until their own deadlines.
    pub(super) abandoned_watched: Arc<Semaphore>,
    pub(super) unsaved: Unsaved,
    pub(super) in_doubt: Mutex<VecDeque<TaskId>>,
    /// Since when no command to the store failed or took too long.
    pub(super) contact: Mutex<Option<Instant>>,
    pub(super) liveness: watch_channel::Sender<Liveness>,
    /// One job at a time asks for the era of the server.
    pub(super) asking: Arc<Semaphore>,
    /// `true` if the store answered when it was last asked.
    pub(super) store_answers: watch_channel::Sender<bool>,
}

impl Runner {
    pub fn new(
        ledger: Ledger,
        kv: KeyValue,
        upstream: Arc<dyn WrappedServer>,
        incarnation: Incarnation,
        rules: Arc<Rules>,
        settings: RunnerSettings,
    ) -> Arc<Self> {
        CALLS.set_limit(settings.calls_max);
        let subscriptions = settings.has_subscriptions;
        let subscriptions = subscriptions.then(|| SubscriptionStore::new(kv.for_creates()));
        Arc::new(Self {
            ledger,
            kv,
            subscriptions,
            upstream,
            watches: Arc::default(),
            told: ToldStates::default(),
            learned: Learned::default(),
            job_calls: SharedJobCalls::default(),
            given_up: Arc::default(),
            same_calls: Arc::default(),
            taken_up: TakenUp::default(),
            incarnation,
            admission: Admission::new(rules),
            draining: CancellationToken::new(),
            permits: ResizableSemaphore::new(settings.calls_max),
            shares: settings
                .calls_per_caller
                .map(|of_each| Shares::of_limit(of_each, &CALLS_PER_CALLER)),
            abandoned_watched: Arc::new(Semaphore::new(settings.calls_max)),
            settings,
            calls: TaskTracker::new(),
            services: TaskTracker::new(),
            halt: CancellationToken::new(),
            carried: Arc::default(),
            progress: CommitBudget::new(),
            unsaved: Unsaved::new(),
            in_doubt: Mutex::default(),
            contact: Mutex::default(),
            liveness: watch_channel::Sender::new(Liveness::default()),
            asking: Arc::new(Semaphore::new(1)),
            store_answers: watch_channel::Sender::new(true),
        })
    }

    pub fn same_calls(&self) -> &Arc<SameCalls> {
        &self.same_calls
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

    /// `CreateTaskResult`, for the client of the task.
    pub(super) fn tell_of(&self, task: &Task) -> String {
        // Noted, so that the first poll waits for news and does not return this state again.
        self.told.tell(task);
        view::create_result(task, self.poll_interval_ms(task))
    }

    /// Returns the interval after which clients are asked to poll this task next.
    pub fn poll_interval_ms(&self, task: &Task) -> u64 {
        let rules = self.rules();
        let (rule, _) = rules.for_tool(&task.name);
        // Every answer about a task that has ended is the same.
        if task.is_ended() || !rule.learns_poll_interval {
            return view::usual_poll_interval_ms(task, self.ledger.now_ms());
        }
        let terms = PollTerms {
            base_ms: task.poll_interval_ms,
            hold_ms: rule.poll_hold_ms,
        };
        let age_ms = self.ledger.now_ms().saturating_sub(task.created_ms);
        self.learned.interval_ms(terms, &task.name, age_ms)
    }

    /// Returns the learned durations of calls.
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Returns the states of tasks that clients have received.
    pub fn told_states(&self) -> &ToldStates {
        &self.told
    }

    /// Returns a receiver that contains `true` if the store answered the last heartbeat, and that is notified of each
    /// change of that.
    pub fn store_answers(&self) -> watch_channel::Receiver<bool> {
        self.store_answers.subscribe()
    }

    /// Returns the rules that apply to calls from now on. Code that judges a request takes them once, so that a
    /// change in between does not affect only a part of the request.
    pub fn rules(&self) -> Arc<Rules> {
        self.admission.rules()
    }

    /// Replaces the rules. Calls that run keep the rules that they began with.
    pub fn change_rules(&self, rules: &Rules) {
        self.admission.change_rules(rules);
    }

    /// Changes how many calls may be under way, and how many of them of one caller. Calls that run go on.
    pub fn change_limits(&self, calls_max: usize, calls_per_caller: usize) {
        self.permits.resize(calls_max);
        CALLS.set_limit(calls_max);
        if let Some(shares) = &self.shares {
            shares.resize(calls_per_caller);
        }
    }

    /// Runs a job for which a drain waits as it does for calls. The job must end soon after [`Self::halt`].
    pub fn spawn_tracked(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.calls.spawn(job);
    }

    /// Cancelled shortly before the grace period of a drain is over.
    pub fn halt(&self) -> &CancellationToken {
        &self.halt
    }

    /// Stops the call if this replica carries it and it belongs to this caller: for a cancel
    /// while the store is away. The carrier commits the cancellation when the store is back.
    pub fn stop(&self, id: TaskId, caller: &Caller, by: &CancelledBy) {
        self.carried.stop(id, caller, by);
    }

    /// Remembers a create that the store may have taken although its caller was refused.
    pub(super) fn doubt(&self, id: TaskId) {
        let mut in_doubt = self.in_doubt.lock();
        if in_doubt.len() == IN_DOUBT_MAX {
            in_doubt.pop_front();
        }
        in_doubt.push_back(id);
    }
}
