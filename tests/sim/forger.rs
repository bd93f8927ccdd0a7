//! Somebody who can write to the store below the seal, and has no key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use raincheck::store::record::encode;
use raincheck::store::seal::Sealer;
use raincheck::store::sealed::{Clear, Sealed};
use raincheck::store::{Commit, Nonce, Store, Write};
use raincheck::task::id::{Incarnation, TaskId};
use raincheck::task::state::{Leg, Outcome, Payload, Task};
use tokio::time::sleep;
use uuid::Uuid;

use crate::replica::Surroundings;
use crate::server::{Script, raw};

/// How the calls are named that nobody made, and what the results say that no server gave.
pub(crate) const FORGED: &str = "forged";

#[derive(Debug)]
pub(crate) struct Forger {
    below: Arc<dyn Store>,
    /// An owner that never lived, whose lease has ended.
    ghost: Incarnation,
    /// The tasks of clients whose records were replaced.
    replaced: Mutex<BTreeSet<TaskId>>,
    calls: Mutex<Vec<String>>,
}

impl Forger {
    /// The forger of this store, and the store as replicas see it, which believe what is in the clear or do not.
    pub(crate) async fn below(store: Arc<dyn Store>, clear: Clear) -> (Self, Arc<dyn Store>) {
        let forger = Self {
            below: Arc::clone(&store),
            ghost: Incarnation::new("ghost"),
            replaced: Mutex::default(),
            calls: Mutex::default(),
        };
        let sealer = Sealer::new("sim", &[7; 32], &[]);
        let sealed = Sealed::sealing(store, sealer, clear, 0).await.unwrap();
        (forger, Arc::new(sealed))
    }

    pub(crate) fn has_replaced(&self, id: TaskId) -> bool {
        self.replaced.lock().unwrap().contains(&id)
    }

    /// How many records were forged.
    pub(crate) fn count(&self) -> u32 {
        let (replaced, calls) = (self.replaced.lock().unwrap(), self.calls.lock().unwrap());
        u32::try_from(replaced.len() + calls.len()).unwrap()
    }

    /// The calls that nobody made.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) async fn forge(&self, all: &Surroundings) {
        let lease = Duration::from_millis(1);
        self.below.beat(Some(&self.ghost), lease).await.unwrap();
        loop {
            sleep(all.dice.millis(200, 3_000)).await;
            let tasks = all.book.all();
            let Some(end) = u64::try_from(tasks.len()).ok().filter(|end| *end > 0) else {
                continue;
            };
            let task = tasks[usize::try_from(all.dice.below(end)).unwrap()].clone();
            match all.dice.below(8) {
                0 => self.replace(&task).await,
                1..4 => self.copy(&task, all.dice.percent(50)).await,
                _ => self.call(all, &task).await,
            }
        }
    }

    /// A call of the forger's choice, which its owner released before it was sent.
    async fn call(&self, all: &Surroundings, like: &Task) {
        let key = format!("{FORGED}-{}", self.calls.lock().unwrap().len());
        let script = Script {
            runs_for: Duration::from_millis(10),
            asks: false,
            resumable: false,
        };
        all.server.enter(&key, script);
        let task = Task {
            id: TaskId::random(),
            owner: Some(self.ghost.clone()),
            leg: Leg::Queued,
            released: true,
            outcome: None,
            resume: None,
            log: None,
            ..like.clone()
        };
        let request = format!(
            r#"{{"method":"tools/call","params":"{{\\"name\\":\\"t\\",\\"arguments\\":{{\\"key\\":\\"{key}\\"}}}}","capabilities":"{{}}","name":"t"}}"#
        );
        self.calls.lock().unwrap().push(key);
        let record = encode(&task).unwrap();
        self.create(&task, record, Some(request.into())).await;
    }

    /// The sealed record of one task as that of another, whole or cut.
    async fn copy(&self, task: &Task, is_cut: bool) {
        let Some(stored) = self.below.load(task.id).await.unwrap() else {
            return;
        };
        let end = if is_cut {
            stored.record.len() / 2
        } else {
            stored.record.len()
        };
        let request = self.below.load_request(task.id).await.unwrap();
        let other = Task {
            id: TaskId::random(),
            ..task.clone()
        };
        self.create(&other, stored.record.slice(..end), request)
            .await;
    }

    /// A result that no server gave, for a task that a client may wait for.
    async fn replace(&self, task: &Task) {
        let Some(stored) = self.below.load(task.id).await.unwrap() else {
            return;
        };
        let result = raw(&format!(
            r#"{{"content":[{{"type":"text","text":"{FORGED}"}}]}}"#
        ));
        let forged = Task {
            outcome: Some(Outcome::Completed(Payload::Inline(result))),
            ..task.clone()
        };
        self.replaced.lock().unwrap().insert(task.id);
        let write = Write {
            expected: Some(stored.version),
            ..self.write(&forged, encode(&forged).unwrap())
        };
        self.below.commit(&write).await.unwrap();
    }

    async fn create(&self, task: &Task, record: Bytes, request: Option<Bytes>) {
        let write = Write {
            request,
            ..self.write(task, record)
        };
        let done = self.below.commit(&write).await.unwrap();
        assert!(matches!(done, Commit::Done(_)));
    }

    fn write(&self, task: &Task, record: Bytes) -> Write {
        Write {
            id: task.id,
            expected: None,
            nonce: Nonce(Uuid::new_v4().as_u128()),
            caller: task.caller,
            record,
            expires_ms: task.expires_ms(),
            due_ms: Some(task.created_ms),
            drop_from: None,
            keep_for: Some(self.ghost.clone()),
            request: None,
            history: None,
            durable: false,
            ends: false,
            listed: None,
        }
    }
}
