//! Two replicas over one store and one server, their clients, and what befalls them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use raincheck::clock::Clock;
use raincheck::mcp::error::{Failure, SideEffect};
use raincheck::mcp::version::Era;
use raincheck::room::Room;
use raincheck::runner::responder::{CallAnswer, CallSubscriber, Reply};
use raincheck::runner::{Announce, CallSpec, Runner, RunnerSettings};
use raincheck::store::Store;
use raincheck::store::key_value::KeyValue;
use raincheck::store::ledger::Ledger;
use raincheck::store::memory::Memory;
use raincheck::store::patience::Patience;
use raincheck::store::record::decode;
use raincheck::store::seal::Sealer;
use raincheck::task::id::{Caller, Fence, Incarnation, TaskId};
use raincheck::task::machine::TaskEvent;
use raincheck::task::policy::{InputWhen, OnOwnerLost, Plan, Rule, Rules};
use raincheck::task::state::{Digest, Outcome, Payload, Reach, Task};
use raincheck::upstream::{Forwarded, Outgoing};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::link::{End, Link};
use crate::server::{LinkedServer, Script, Server, raw};
use crate::store::{CommitWatch, LinkedStore, Planted};

const LEASE: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_mins(1);
const CALLS: u64 = 12;
/// Faults come for so long; then everything heals.
const STORM: Duration = Duration::from_secs(40);

/// Unix milliseconds that go with the paused time.
#[derive(Debug)]
struct Paused(Instant);

impl Clock for Paused {
    fn now_ms(&self) -> u64 {
        let passed = Instant::now().saturating_duration_since(self.0);
        1_700_000_000_000 + u64::try_from(passed.as_millis()).unwrap()
    }
}

struct World {
    dice: Dice,
    clock: Arc<Paused>,
    store: Arc<dyn Store>,
    server: Arc<Server>,
    book: Arc<CommitWatch>,
    era: Era,
    planted: Option<Planted>,
    replicas: Mutex<[Replica; 2]>,
    /// The tasks that clients heard of, by the keys of their calls.
    announced: Mutex<BTreeMap<String, TaskId>>,
    plain: AtomicU32,
    /// The calls that had no effect, as their clients heard.
    unsent: Mutex<BTreeSet<String>>,
}

#[derive(Clone)]
struct Replica {
    runner: Arc<Runner>,
    link: Arc<Link>,
}

/// What happened in a history: a simulation in which nothing happens proves nothing.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) wrongs: Vec<String>,
    pub(crate) plain: u32,
    pub(crate) announced: u32,
    pub(crate) completed: u32,
    pub(crate) failed: u32,
    pub(crate) cancelled: u32,
    /// Tasks that had more than one owner.
    pub(crate) taken_over: u32,
    /// Tasks that had more than one owner, and a result.
    pub(crate) carried_on: u32,
    /// Calls that ran more than once.
    pub(crate) repeated: u32,
    pub(crate) questions: u32,
    /// Calls whose clients heard that they had no effect.
    pub(crate) unsent: u32,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.plain += other.plain;
        self.announced += other.announced;
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.taken_over += other.taken_over;
        self.carried_on += other.carried_on;
        self.repeated += other.repeated;
        self.questions += other.questions;
        self.unsent += other.unsent;
    }
}

/// Runs a history.
pub(crate) async fn history(seed: u64, planted: Option<Planted>) -> Tally {
    let dice = Dice::new(seed);
    let clock = Arc::new(Paused(Instant::now()));
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let (server, book) = (Arc::<Server>::default(), Arc::<CommitWatch>::default());
    let era = if dice.percent(70) {
        Era::Legacy
    } else {
        Era::Modern
    };
    let parts = Parts {
        dice: dice.clone(),
        clock: Arc::clone(&clock),
        store: Arc::clone(&store),
        server: Arc::clone(&server),
        book: Arc::clone(&book),
        era,
        planted,
    };
    let replicas = [parts.start(0).await, parts.start(1).await];
    let world = Arc::new(World {
        dice,
        clock,
        store,
        server,
        book,
        era,
        planted,
        replicas: Mutex::new(replicas),
        announced: Mutex::default(),
        plain: AtomicU32::new(0),
        unsent: Mutex::default(),
    });
    world.live().await;
    world.judge().await
}

/// What a replica is made of.
struct Parts {
    dice: Dice,
    clock: Arc<Paused>,
    store: Arc<dyn Store>,
    server: Arc<Server>,
    book: Arc<CommitWatch>,
    era: Era,
    planted: Option<Planted>,
}

impl Parts {
    async fn start(&self, number: usize) -> Replica {
        let link = Arc::new(Link::new(self.dice.clone()));
        let incarnation = Incarnation::new(&format!("replica-{number}"));
        let store: Arc<dyn Store> = Arc::new(LinkedStore {
            inner: Arc::clone(&self.store),
            link: Arc::clone(&link),
            book: Arc::clone(&self.book),
            by: incarnation.clone(),
            planted: self.planted,
            commits: Mutex::new(self.dice.below(7)),
        });
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let patience = Patience {
            read: Duration::from_secs(2),
            create: Duration::from_secs(1),
        };
        let settings = RunnerSettings {
            calls_max: 100,
            room: Room::new(1 << 20),
            concurrency: None,
            lease: LEASE,
            exclusive_store: false,
            shared_clock: None,
            reach: Reach::Shared,
            sealer: Some(Sealer::new("sim", &[7; 32], None)),
        };
        let server = LinkedServer {
            server: Arc::clone(&self.server),
            link: Arc::clone(&link),
            era: self.era,
        };
        let runner = Runner::new(
            Ledger::new(Arc::clone(&store), Arc::clone(&clock), patience),
            KeyValue::new(store, clock, patience),
            Arc::new(server),
            incarnation,
            Arc::new(Rules::new(Rule::default(), Vec::new())),
            settings,
        );
        // A replica that cannot reach the store at its start starts again, as its supervisor would.
        while runner.start().await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
        Replica { runner, link }
    }
}

impl World {
    async fn live(self: &Arc<Self>) {
        let mut clients = JoinSet::new();
        for number in 0..CALLS {
            let world = Arc::clone(self);
            clients.spawn(async move {
                sleep(world.dice.millis(0, 20_000)).await;
                world.client(&format!("call-{number}")).await;
            });
        }
        let storm = async {
            let until = Instant::now() + STORM;
            while Instant::now() < until {
                sleep(self.dice.millis(500, 6_000)).await;
                self.befall().await;
            }
        };
        storm.await;
        for replica in &*self.replicas.lock().unwrap() {
            replica.link.heal();
        }
        // Every call has ended by its deadline, and what was lost is found a lease or two later.
        sleep(DEADLINE + 6 * LEASE).await;
        clients.abort_all();
    }

    /// Something happens to one replica.
    async fn befall(&self) {
        let number = usize::try_from(self.dice.below(2)).unwrap();
        let link = Arc::clone(&self.replicas.lock().unwrap()[number].link);
        match self.dice.below(4) {
            0 => {
                link.kill();
                sleep(self.dice.millis(100, 8_000)).await;
                let parts = Parts {
                    dice: self.dice.clone(),
                    clock: Arc::clone(&self.clock),
                    store: Arc::clone(&self.store),
                    server: Arc::clone(&self.server),
                    book: Arc::clone(&self.book),
                    era: self.era,
                    planted: self.planted,
                };
                let replica = parts.start(number).await;
                self.replicas.lock().unwrap()[number] = replica;
            }
            1 => link.cut(End::Server, self.dice.millis(200, 4_000), false),
            // Often longer than a lease: others take over what this replica still carries.
            2 => link.cut(End::Store, self.dice.millis(1_000, 15_000), false),
            _ => {
                let (length, hangs) = (self.dice.millis(1_000, 15_000), self.dice.percent(50));
                link.cut(End::Store, length, hangs);
                link.cut(End::Server, length, hangs);
            }
        }
    }

    fn replica(&self) -> Replica {
        let number = usize::try_from(self.dice.below(2)).unwrap();
        self.replicas.lock().unwrap()[number].clone()
    }

    /// Makes a call, waits for its answer, and follows its task.
    async fn client(&self, key: &str) {
        let script = Script {
            runs_for: if self.dice.percent(25) {
                self.dice.millis(1, 200)
            } else {
                self.dice.millis(200, 15_000)
            },
            asks: self.era == Era::Legacy && self.dice.percent(30),
            resumable: self.era == Era::Legacy && self.dice.percent(60),
        };
        self.server.enter(key, script);
        let replica = self.replica();
        let Ok(client) = replica.runner.call(self.call(key)) else {
            return;
        };
        let patience = if self.dice.percent(10) {
            self.dice.millis(0, 1_000)
        } else {
            DEADLINE * 2
        };
        let hearing = tokio::time::timeout(patience, self.hear(key, client, &replica.link));
        let Ok(Some(id)) = hearing.await else { return };
        let cancels = self.dice.percent(15);
        loop {
            sleep(self.dice.millis(200, 3_000)).await;
            let replica = self.replica();
            if replica.link.is_dead() {
                continue;
            }
            let ledger = replica.runner.ledger();
            let Ok(Some(loaded)) = ledger.load(id).await else {
                continue;
            };
            if loaded.task.is_ended() {
                return;
            }
            if cancels {
                let cancelled = ledger.apply(&loaded, TaskEvent::Cancel { reason: None });
                let _ = cancelled.await;
                continue;
            }
            let open = loaded.task.open_questions();
            let answers = open.map(|(question, _)| {
                let answer = raw(r#"{"action":"accept","content":{}}"#);
                (question.key.clone(), answer)
            });
            let answers: BTreeMap<_, _> = answers.collect();
            if !answers.is_empty() {
                let from = Forwarded::default();
                let _ = replica.runner.answer(loaded, answers, from).await;
            }
        }
    }

    /// The task that the call became, as its client heard of it.
    async fn hear(&self, key: &str, mut client: CallSubscriber, link: &Link) -> Option<TaskId> {
        let answer = loop {
            match client.next().await? {
                Reply::Relay(_) => {}
                Reply::Answer(answer) => break answer,
            }
        };
        link.alive().await;
        client.into_guard().announce();
        let result = match answer {
            CallAnswer::Result(result) => result,
            CallAnswer::Failed(Failure { effect, .. }) | CallAnswer::StoreUnavailable(effect) => {
                if effect == SideEffect::None {
                    self.unsent.lock().unwrap().insert(key.to_owned());
                }
                return None;
            }
            CallAnswer::Error(_) => return None,
        };
        let result: serde_json::Value = serde_json::from_str(result.get()).unwrap();
        if let Some(id) = result["taskId"].as_str() {
            let id = TaskId::parse(id).unwrap();
            self.announced.lock().unwrap().insert(key.to_owned(), id);
            return Some(id);
        }
        if result["content"][0]["text"] != key {
            self.book
                .wrong(format!("{key}: the answer of another call"));
        }
        self.plain.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn call(&self, key: &str) -> CallSpec {
        let caller = Caller::from_bytes([1; 16]);
        // A tool that is safe to repeat has a name that says so.
        let repeatable = is_repeatable(key);
        let plan = if self.dice.percent(30) {
            Plan::Always {
                input: InputWhen::InTask,
            }
        } else {
            Plan::Auto {
                window_ms: 300,
                input: InputWhen::InTask,
            }
        };
        let mut outgoing = Outgoing::adopted([1; 16], r#"{"elicitation":{}}"#.into());
        outgoing.params = format!(r#"{{"name":"t","arguments":{{"key":"{key}"}}}}"#).into();
        outgoing.name = Some("t".into());
        CallSpec {
            caller,
            era: self.era,
            client_era: Era::Modern,
            outgoing,
            rule: Rule {
                max_duration_ms: u64::try_from(DEADLINE.as_millis()).unwrap(),
                on_owner_lost: OnOwnerLost::Resume,
                ..Rule::default()
            },
            plan,
            announce: Announce::Task,
            progress_token: None,
            digest: Digest::of(&[key]),
            repeatable,
            listed: false,
            session: None,
        }
    }

    /// Judges what stands when all has come to rest.
    async fn judge(&self) -> Tally {
        let mut tally = Tally {
            plain: self.plain.load(Ordering::Relaxed),
            ..Tally::default()
        };
        for number in 0..CALLS {
            let key = format!("call-{number}");
            let effects = self.server.effects(&key);
            tally.repeated += u32::from(effects > 1);
            if effects > 1 && !is_repeatable(&key) {
                self.book.wrong(format!("{key}: ran {effects} times"));
            }
            let is_unsent = self.unsent.lock().unwrap().contains(&key);
            tally.unsent += u32::from(is_unsent);
            if is_unsent && effects > 0 {
                self.book
                    .wrong(format!("{key}: ran, and its client heard that it did not"));
            }
        }
        let announced = self.announced.lock().unwrap().clone();
        for (key, id) in announced {
            tally.announced += 1;
            let Some(stored) = self.store.load(id).await.unwrap() else {
                self.book.wrong(format!("{key}: its task is gone"));
                continue;
            };
            self.judge_task(&key, &decode(&stored.record).unwrap().task, &mut tally);
        }
        tally.wrongs = self.book.wrongs();
        tally
    }

    fn judge_task(&self, key: &str, task: &Task, tally: &mut Tally) {
        let is_second = task.fence > Fence(1);
        tally.taken_over += u32::from(is_second);
        tally.questions += u32::try_from(task.questions.len()).unwrap();
        match &task.outcome {
            None => self.book.wrong(format!("{key}: its task never ended")),
            Some(Outcome::Completed(Payload::Inline(result))) => {
                tally.completed += 1;
                tally.carried_on += u32::from(is_second);
                if !result.get().contains(&format!("\"{key}\"")) {
                    self.book
                        .wrong(format!("{key}: the result of another call"));
                }
            }
            Some(Outcome::Completed(Payload::Kept { .. })) => {
                self.book
                    .wrong(format!("{key}: a result that is too large"));
            }
            Some(Outcome::Failed(_)) => tally.failed += 1,
            Some(Outcome::Cancelled) => tally.cancelled += 1,
        }
        let known = self.book.last(task.id).and_then(|task| task.outcome);
        if known.is_some() && task.outcome.is_none() {
            self.book
                .wrong(format!("{key}: an end that was committed is lost"));
        }
    }
}

fn is_repeatable(key: &str) -> bool {
    key.ends_with(['0', '3', '6', '9'])
}
