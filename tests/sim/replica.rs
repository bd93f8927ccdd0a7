//! One replica of raincheck over links to the store and to the server, and the calls that clients make there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use raincheck::base::clock::Clock;
use raincheck::mcp::version::Era;
use raincheck::runner::call_log::log::EventLog;
use raincheck::runner::{CallClient, CallSpec, CallTerms, Runner, RunnerSettings};
use raincheck::sharing::room::BufferBudget;
use raincheck::store::Store;
use raincheck::store::history::{History, HistoryTerms};
use raincheck::store::key_value::KeyValue;
use raincheck::store::ledger::Ledger;
use raincheck::store::memory::Memory;
use raincheck::store::patience::StorePatience;
use raincheck::store::seal::Sealer;
use raincheck::store::sealed::Clear;
use raincheck::task::id::{Caller, Incarnation};
use raincheck::task::notify_rules::NotifyRules;
use raincheck::task::plan::Plan;
use raincheck::task::policy::{InputWhen, OnOwnerLost, Rule, Rules};
use raincheck::task::state::Reach;
use raincheck::upstream::UpstreamRequest;
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::forger::Forger;
use crate::link::Link;
use crate::server::{LinkedServer, Script, Server};
use crate::store::{CommitWatch, LinkedStore, Planted};

pub(crate) const LEASE: Duration = Duration::from_secs(5);
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// Unix milliseconds that go with the paused time.
#[derive(Debug)]
struct Paused(Instant);

impl Clock for Paused {
    fn now_ms(&self) -> u64 {
        let passed = Instant::now().saturating_duration_since(self.0);
        1_700_000_000_000 + u64::try_from(passed.as_millis()).unwrap()
    }
}

#[derive(Clone)]
pub(crate) struct Replica {
    pub(crate) runner: Arc<Runner>,
    pub(crate) link: Arc<Link>,
}

/// What all replicas of a world share: replicas are started from it.
pub(crate) struct Surroundings {
    pub(crate) dice: Dice,
    clock: Arc<Paused>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) server: Arc<Server>,
    pub(crate) book: Arc<CommitWatch>,
    pub(crate) era: Era,
    planted: Option<Planted>,
    pub(crate) forger: Option<Forger>,
}

impl Surroundings {
    pub(crate) fn new(dice: Dice, era: Era, planted: Option<Planted>) -> Self {
        let clock = Arc::new(Paused(Instant::now()));
        Self {
            store: Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)),
            server: Arc::default(),
            book: Arc::default(),
            dice,
            clock,
            era,
            planted,
            forger: None,
        }
    }

    /// With a store that is sealed, and somebody who writes below the seal. `clear`: what becomes of values that are not
    /// sealed.
    pub(crate) async fn forged(self, clear: Clear) -> Self {
        let (forger, store) = Forger::below(self.store, clear).await;
        Self {
            forger: Some(forger),
            store,
            ..self
        }
    }

    /// A replica that is never started, and sees the store as it is.
    pub(crate) fn observer(&self) -> Replica {
        let link = Arc::new(Link::new(self.dice.clone()));
        let runner = self.runner(Arc::clone(&self.store), &link, Incarnation::new("observer"));
        Replica { runner, link }
    }

    /// Begins a call that becomes a task at once. Its client hears of the task, and goes.
    pub(crate) async fn begin_task(&self, replica: &Replica, key: &str, runs_for: Duration) {
        let script = Script {
            runs_for,
            asks: false,
            resumable: false,
        };
        self.server.enter(key, script);
        let input = InputWhen::InTask;
        let call = call_spec(self.era, key, Plan::Always { input });
        let mut client = replica.runner.call(call).unwrap();
        client.next().await.unwrap();
        client.into_guard().announce();
    }

    /// What the store says of this log from now on is watched.
    pub(crate) fn watch_log(&self, log: &EventLog) {
        self.book.watch_log(log.clone());
    }

    pub(crate) async fn start(&self, number: usize) -> Replica {
        let link = Arc::new(Link::new(self.dice.clone()));
        let incarnation = Incarnation::new(&format!("replica-{number}"));
        let incarnation = incarnation.reading(raincheck::store::record::FORMAT);
        let store: Arc<dyn Store> = Arc::new(LinkedStore {
            inner: Arc::clone(&self.store),
            link: Arc::clone(&link),
            book: Arc::clone(&self.book),
            by: incarnation.clone(),
            planted: self.planted,
            commits: Mutex::new(self.dice.below(7)),
        });
        let runner = self.runner(store, &link, incarnation);
        // A replica that cannot reach the store at its start starts again, as its supervisor would.
        while runner.start().await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
        Replica { runner, link }
    }

    fn runner(
        &self,
        store: Arc<dyn Store>,
        link: &Arc<Link>,
        incarnation: Incarnation,
    ) -> Arc<Runner> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let patience = StorePatience {
            read: Duration::from_secs(2),
            create: Duration::from_secs(1),
        };
        let settings = RunnerSettings {
            calls_per_caller: None,
            calls_max: 100,
            room: BufferBudget::new(1 << 20),
            lease: LEASE,
            exclusive_store: false,
            shared_clock: None,
            reach: Reach::Shared,
            renews_credentials: true,
            sealer: Some(Sealer::new("sim", &[7; 32], &[])),
            keeps_requests: false,
            has_subscriptions: false,
            notify: NotifyRules::default(),
        };
        let server = LinkedServer {
            server: Arc::clone(&self.server),
            link: Arc::clone(link),
            era: self.era,
        };
        let kv = KeyValue::new(Arc::clone(&store), Arc::clone(&clock), patience);
        let terms = HistoryTerms {
            keep: Duration::from_hours(24),
            entries_max: 1_000,
        };
        let history = History::new(Arc::clone(&store), kv.clone(), terms);
        let ledger = Ledger::new(store, clock, patience);
        Runner::new(
            ledger.recording(Some(Arc::new(history))),
            kv,
            Arc::new(server),
            incarnation,
            Arc::new(Rules::new(Rule::default(), Vec::new())),
            settings,
        )
    }
}

/// A call of the tool that runs the script of `key`.
pub(crate) fn call_spec(era: Era, key: &str, plan: Plan) -> CallSpec {
    let mut outgoing = UpstreamRequest::adopted([1; 16], r#"{"elicitation":{}}"#.into());
    outgoing.params = format!(r#"{{"name":"t","arguments":{{"key":"{key}"}}}}"#).into();
    outgoing.name = Some("t".into());
    let client = CallClient {
        caller: Caller::from_bytes([1; 16]),
        label: None,
        era: Era::Modern,
        list_key: None,
        session: None,
        gives_up_as: None,
        program: 0,
        note: None,
        running: None,
        related: Vec::new(),
        span: None,
    };
    let rule = Rule {
        max_duration_ms: u64::try_from(DEADLINE.as_millis()).unwrap(),
        on_owner_lost: OnOwnerLost::Resume,
        ..Rule::default()
    };
    let terms = CallTerms {
        plan,
        ..CallTerms::held(Some(era), &Arc::new(rule))
    };
    CallSpec::of(client, terms, outgoing, None)
}
