//! Two replicas over one store and one server, their clients, and what befalls them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use raincheck::mcp::error::{Failure, SideEffect};
use raincheck::mcp::version::Era;
use raincheck::runner::CallSpec;
use raincheck::runner::responder::{CallAnswer, CallSubscriber, Reply};
use raincheck::store::Stored;
use raincheck::store::record::decode;
use raincheck::store::sealed::Clear;
use raincheck::task::cancelled_by::CancelledBy;
use raincheck::task::id::{Fence, TaskId};
use raincheck::task::input_rule::AnsweredBy;
use raincheck::task::machine::TaskEvent;
use raincheck::task::plan::Plan;
use raincheck::task::policy::InputWhen;
use raincheck::task::state::{Outcome, Payload, Task};
use raincheck::upstream::Forwarded;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use crate::dice::Dice;
use crate::forger::FORGED;
use crate::joined;
use crate::link::{End, Link};
use crate::logged::{self, LogTally, Logged};
use crate::replica::{DEADLINE, LEASE, Replica, Surroundings, call_spec};
use crate::server::{Script, raw};
use crate::store::Planted;

const CALLS: u64 = 12;
/// Faults come for so long; then everything heals.
const STORM: Duration = Duration::from_secs(40);

pub(crate) struct World {
    pub(crate) all: Surroundings,
    replicas: Mutex<[Replica; 2]>,
    /// Sees the store as it is, and carries nothing.
    pub(crate) observer: Replica,
    /// Clients that had the answer to a call with a key.
    pub(crate) joined: AtomicU32,
    pub(crate) logged: Logged,
    drained: AtomicU32,
    /// The tasks that clients heard of, by the keys of their calls.
    announced: Mutex<BTreeMap<String, TaskId>>,
    plain: AtomicU32,
    /// The calls that had no effect, as their clients heard.
    unsent: Mutex<BTreeSet<String>>,
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
    /// Clients that had the answer to a call with a key.
    pub(crate) joined: u32,
    pub(crate) logged: LogTally,
    pub(crate) drained: u32,
    /// Records that somebody wrote who has no key.
    pub(crate) forged: u32,
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
        self.joined += other.joined;
        self.logged.add(&other.logged);
        self.drained += other.drained;
        self.forged += other.forged;
    }
}

/// Runs a history.
pub(crate) async fn history(seed: u64, planted: Option<Planted>, forged: Option<Clear>) -> Tally {
    let dice = Dice::new(seed);
    let era = if dice.percent(70) {
        Era::Legacy
    } else {
        Era::Modern
    };
    let mut all = Surroundings::new(dice, era, planted);
    if let Some(clear) = forged {
        all = all.forged(clear).await;
    }
    let replicas = [all.start(0).await, all.start(1).await];
    let world = Arc::new(World {
        observer: all.observer(),
        all,
        replicas: Mutex::new(replicas),
        joined: AtomicU32::new(0),
        logged: Logged::default(),
        drained: AtomicU32::new(0),
        announced: Mutex::default(),
        plain: AtomicU32::new(0),
        unsent: Mutex::default(),
    });
    world.live().await;
    world.judge().await
}

impl World {
    async fn live(self: &Arc<Self>) {
        let mut clients = JoinSet::new();
        for number in 0..CALLS {
            let world = Arc::clone(self);
            clients.spawn(async move {
                sleep(world.all.dice.millis(0, 20_000)).await;
                world.client(&format!("call-{number}")).await;
            });
        }
        self.enter_joined();
        for key in joined::clients() {
            let world = Arc::clone(self);
            clients.spawn(async move {
                sleep(world.all.dice.millis(0, 20_000)).await;
                world.joining_client(&key).await;
            });
        }
        for number in 0..logged::CALLS {
            let world = Arc::clone(self);
            clients.spawn(async move {
                sleep(world.all.dice.millis(0, 20_000)).await;
                world.logged_client(number).await;
            });
        }
        if self.all.forger.is_some() {
            let world = Arc::clone(self);
            clients.spawn(async move {
                if let Some(forger) = &world.all.forger {
                    forger.forge(&world.all).await;
                }
            });
        }
        let storm = async {
            let until = Instant::now() + STORM;
            while Instant::now() < until {
                sleep(self.all.dice.millis(500, 6_000)).await;
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
        let number = usize::try_from(self.all.dice.below(2)).unwrap();
        let Replica { runner, link } = self.replicas.lock().unwrap()[number].clone();
        match self.all.dice.below(5) {
            0 => {
                link.kill();
                sleep(self.all.dice.millis(100, 8_000)).await;
                self.start_again(number).await;
            }
            // A new version is rolled out.
            4 => {
                runner.refuse();
                let passing = TaskTracker::new();
                passing.close();
                let grace = self.all.dice.millis(1_000, 6_000);
                runner.drain(grace, &passing).await;
                link.kill();
                self.drained.fetch_add(1, Ordering::Relaxed);
                self.start_again(number).await;
            }
            1 => link.cut(End::Server, self.all.dice.millis(200, 4_000), false),
            // Often longer than a lease: others take over what this replica still carries.
            2 => link.cut(End::Store, self.all.dice.millis(1_000, 15_000), false),
            _ => {
                let (length, hangs) = (
                    self.all.dice.millis(1_000, 15_000),
                    self.all.dice.percent(50),
                );
                link.cut(End::Store, length, hangs);
                link.cut(End::Server, length, hangs);
            }
        }
    }

    async fn start_again(&self, number: usize) {
        let replica = self.all.start(number).await;
        self.replicas.lock().unwrap()[number] = replica;
    }

    pub(crate) fn replica(&self) -> Replica {
        let number = usize::try_from(self.all.dice.below(2)).unwrap();
        self.replicas.lock().unwrap()[number].clone()
    }

    /// Makes a call, waits for its answer, and follows its task.
    async fn client(&self, key: &str) {
        let script = Script {
            runs_for: if self.all.dice.percent(25) {
                self.all.dice.millis(1, 200)
            } else {
                self.all.dice.millis(200, 15_000)
            },
            asks: self.all.era == Era::Legacy && self.all.dice.percent(30),
            resumable: self.all.era == Era::Legacy && self.all.dice.percent(60),
        };
        self.all.server.enter(key, script);
        let replica = self.replica();
        let Ok(client) = replica.runner.call(self.call(key)) else {
            return;
        };
        let patience = if self.all.dice.percent(10) {
            self.all.dice.millis(0, 1_000)
        } else {
            DEADLINE * 2
        };
        let hearing = tokio::time::timeout(patience, self.hear(key, client, &replica.link));
        let Ok(Some(id)) = hearing.await else { return };
        let cancels = self.all.dice.percent(15);
        loop {
            sleep(self.all.dice.millis(200, 3_000)).await;
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
                let cancelled = ledger.apply(
                    &loaded,
                    TaskEvent::Cancel {
                        by: CancelledBy::Client,
                    },
                );
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
                let _ = replica
                    .runner
                    .answer(loaded, answers, (AnsweredBy::Client, from))
                    .await;
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
        let result: serde_json::Value = serde_json::from_str(&result).unwrap();
        if let Some(id) = result["taskId"].as_str() {
            let id = TaskId::parse(id).unwrap();
            self.announced.lock().unwrap().insert(key.to_owned(), id);
            return Some(id);
        }
        if result["content"][0]["text"] != key {
            self.all
                .book
                .wrong(format!("{key}: the answer of another call"));
        }
        self.plain.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn call(&self, key: &str) -> CallSpec {
        let plan = if self.all.dice.percent(30) {
            Plan::Always {
                input: InputWhen::InTask,
            }
        } else {
            Plan::Auto {
                window_ms: 300,
                input: InputWhen::InTask,
            }
        };
        let mut call = call_spec(self.all.era, key, plan);
        // A tool that is safe to repeat has a name that says so.
        call.terms.repeatable = is_repeatable(key);
        call
    }

    /// Judges what stands when all has come to rest.
    async fn judge(&self) -> Tally {
        let mut tally = Tally {
            plain: self.plain.load(Ordering::Relaxed),
            joined: self.joined.load(Ordering::Relaxed),
            drained: self.drained.load(Ordering::Relaxed),
            logged: self.logged.told.lock().unwrap().clone(),
            ..Tally::default()
        };
        self.judge_joined();
        for number in 0..CALLS {
            let key = format!("call-{number}");
            let effects = self.all.server.effects(&key);
            tally.repeated += u32::from(effects > 1);
            if effects > 1 && !is_repeatable(&key) {
                self.all.book.wrong(format!("{key}: ran {effects} times"));
            }
            let is_unsent = self.unsent.lock().unwrap().contains(&key);
            tally.unsent += u32::from(is_unsent);
            if is_unsent && effects > 0 {
                self.all
                    .book
                    .wrong(format!("{key}: ran, and its client heard that it did not"));
            }
        }
        let announced = self.announced.lock().unwrap().clone();
        let ended = self.all.store.ended(&[]).await.unwrap();
        for (key, id) in announced {
            tally.announced += 1;
            if self.is_replaced(id) {
                if let Ok(stored) = self.all.store.load(id).await {
                    self.judge_replaced(&key, stored);
                }
                continue;
            }
            let Some(stored) = self.all.store.load(id).await.unwrap() else {
                self.all.book.wrong(format!("{key}: its task is gone"));
                continue;
            };
            let task = decode(&stored.record).unwrap().task;
            let entries = ended.iter().filter(|entry| entry.id == id).count();
            if entries != usize::from(task.is_ended()) {
                let what = format!("{key}: {entries} entries in the history");
                self.all.book.wrong(what);
            }
            self.judge_task(&key, &task, &mut tally);
        }
        if let Some(forger) = &self.all.forger {
            tally.forged = forger.count();
            for key in forger.calls() {
                if self.all.server.effects(&key) > 0 {
                    self.all
                        .book
                        .wrong(format!("{key}: ran, and nobody called"));
                }
            }
        }
        tally.wrongs = self.all.book.wrongs();
        tally
    }

    fn is_replaced(&self, id: TaskId) -> bool {
        let forger = self.all.forger.as_ref();
        forger.is_some_and(|forger| forger.has_replaced(id))
    }

    /// A record that somebody replaced is unreadable or gone, or was replaced again by its owner.
    fn judge_replaced(&self, key: &str, stored: Option<Stored>) {
        let Some(stored) = stored else { return };
        let task = decode(&stored.record).unwrap().task;
        let outcome = serde_json::to_string(&task.outcome).unwrap();
        if outcome.contains(FORGED) {
            self.all.book.wrong(format!("{key}: a forged result"));
        }
    }

    fn judge_task(&self, key: &str, task: &Task, tally: &mut Tally) {
        let is_second = task.fence > Fence(1);
        tally.taken_over += u32::from(is_second);
        tally.questions += u32::try_from(task.questions.len()).unwrap();
        match &task.outcome {
            None => self.all.book.wrong(format!("{key}: its task never ended")),
            Some(Outcome::Completed(Payload::Inline(result))) => {
                tally.completed += 1;
                tally.carried_on += u32::from(is_second);
                if !result.get().contains(&format!("\"{key}\"")) {
                    self.all
                        .book
                        .wrong(format!("{key}: the result of another call"));
                }
            }
            Some(Outcome::Completed(Payload::Kept { .. })) => {
                self.all
                    .book
                    .wrong(format!("{key}: a result that is too large"));
            }
            Some(Outcome::Failed(_)) => tally.failed += 1,
            Some(Outcome::Cancelled) => tally.cancelled += 1,
        }
        let known = self.all.book.last(task.id).and_then(|task| task.outcome);
        if known.is_some() && task.outcome.is_none() {
            self.all
                .book
                .wrong(format!("{key}: an end that was committed is lost"));
        }
    }
}

fn is_repeatable(key: &str) -> bool {
    key.ends_with(['0', '3', '6', '9'])
}
