//! A fresh store for one test, with its clock and whatever must live as long.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::base::clock::{Clock, Manual, System};
use raincheck::store::embedded::Embedded;
use raincheck::store::memory::Memory;
use raincheck::store::redis::{Namespace, Redis, RedisOptions};
use raincheck::store::seal::Sealer;
use raincheck::store::sealed::{Clear, Sealed};
use raincheck::store::{Commit, Nonce, Store, Stored, Version, Write};
use raincheck::task::id::{Caller, Revision, TaskId};
use redis::AsyncConnectionConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::directory::TempDir;
use crate::eventually::eventually;
use crate::redis_server::RedisServer;

pub(crate) struct Rig {
    pub(crate) store: Arc<dyn Store>,
    clock: Time,
    /// Calls of `due` that see all there is.
    looks: usize,
    _keep: Box<dyn Any + Send + Sync>,
}

enum Time {
    Manual(Arc<Manual>),
    /// Redis expires by its own clock.
    Real,
}

/// Any moment that is not zero.
pub(crate) const START_MS: u64 = 1_800_000_000_000;

impl Rig {
    pub(crate) fn memory() -> Self {
        Self::manual(|clock| Arc::new(Memory::new(clock)), ())
    }

    pub(crate) fn embedded() -> Self {
        let directory = Place::new();
        let file = directory.file();
        Self::manual(
            |clock| Arc::new(Embedded::open(&file, clock).unwrap()),
            directory,
        )
    }

    pub(crate) fn embedded_in_memory() -> Self {
        Self::manual(|clock| Arc::new(Embedded::in_memory(clock).unwrap()), ())
    }

    /// A file under the layer that seals.
    pub(crate) async fn sealed() -> Self {
        let rig = Self::embedded();
        let sealer = Sealer::new("contract", &[7; 32], &[]);
        let below = Arc::clone(&rig.store);
        let sealed = Sealed::sealing(below, sealer, Clear::Refused, START_MS).await;
        Self {
            store: Arc::new(sealed.unwrap()),
            ..rig
        }
    }

    pub(crate) async fn redis() -> Self {
        let server = RedisServer::start();
        let store = redis_store(&server.url(), "contract").await;
        Self {
            store,
            clock: Time::Real,
            looks: 1,
            _keep: Box::new(server),
        }
    }

    /// On servers that others use as well. The namespace is cut where it would be too long.
    pub(crate) async fn redis_at(url: &str, namespace: &str, looks: usize) -> Self {
        Self {
            store: redis_store(url, &namespace[..namespace.len().min(64)]).await,
            clock: Time::Real,
            looks,
            _keep: Box::new(()),
        }
    }

    /// What is overdue, in as many calls as it takes.
    pub(crate) async fn due(&self, now_ms: u64, limit: usize) -> Vec<TaskId> {
        let mut due = Vec::new();
        for _ in 0..self.looks {
            due.append(&mut self.store.due(now_ms, limit).await.unwrap());
        }
        due
    }

    fn manual(
        open: impl FnOnce(Arc<dyn Clock>) -> Arc<dyn Store>,
        keep: impl Any + Send + Sync,
    ) -> Self {
        let clock = Arc::new(Manual::at(START_MS));
        let as_clock: Arc<dyn Clock> = Arc::<Manual>::clone(&clock);
        Self {
            store: open(as_clock),
            clock: Time::Manual(clock),
            looks: 1,
            _keep: Box::new(keep),
        }
    }

    /// The clock by which the store expires what it keeps.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        match &self.clock {
            Time::Manual(clock) => Arc::<Manual>::clone(clock),
            Time::Real => Arc::new(System),
        }
    }

    /// Returns `true` if tasks are in many buckets, each of which keeps its own last entries.
    pub(crate) fn is_spread(&self) -> bool {
        self.looks > 1
    }

    pub(crate) fn now_ms(&self) -> u64 {
        match &self.clock {
            Time::Manual(clock) => clock.now_ms(),
            Time::Real => System.now_ms(),
        }
    }

    /// Turns the clock there where it is ours; elsewhere time passes by itself, and the test waits
    /// for what it causes.
    pub(crate) fn pass(&self, time: Duration) {
        if let Time::Manual(clock) = &self.clock {
            clock.advance(time);
        }
    }

    /// A create that lives an hour.
    pub(crate) fn create(&self) -> Write {
        create_until(self.now_ms() + 3_600_000)
    }

    /// Lets time pass until the store no longer finds the task.
    pub(crate) async fn expire(&self, id: TaskId, after: Duration) {
        self.pass(after);
        let gone = async || self.revision(id).await.is_none();
        eventually(PATIENCE, "the task expires", gone).await;
    }

    pub(crate) async fn revision(&self, id: TaskId) -> Option<u64> {
        self.store
            .load(id)
            .await
            .unwrap()
            .map(|stored| stored.version.revision.0)
    }
}

pub(crate) async fn redis_store(url: &str, namespace: &str) -> Arc<Redis> {
    let options = RedisOptions::new(url, Namespace::parse(namespace).unwrap());
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    Arc::new(Redis::open(&options, &tasks, &stop).await.unwrap())
}

/// A plain connection, to look at what the store wrote.
pub(crate) async fn raw(server: &RedisServer) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    // A script that fills a server takes longer than a command may take by default.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await.unwrap()
}

/// In an hour, by the real clock.
pub(crate) fn hour() -> u64 {
    System.now_ms() + 3_600_000
}

pub(crate) fn create_until(expires_ms: u64) -> Write {
    Write {
        id: TaskId::random(),
        expected: None,
        nonce: nonce(),
        caller: Caller::from_bytes([7; 16]),
        record: Bytes::from_static(b"created"),
        expires_ms,
        due_ms: None,
        drop_from: None,
        keep_for: None,
        request: None,
        history: None,
        durable: false,
        ends: false,
        listed: None,
    }
}

/// The next write of the same task, after `write` was done as `revision`.
pub(crate) fn update(write: &Write, revision: u64, record: &'static str) -> Write {
    Write {
        expected: Some(Version {
            revision: Revision(revision),
            nonce: write.nonce,
        }),
        nonce: nonce(),
        record: Bytes::from_static(record.as_bytes()),
        due_ms: None,
        drop_from: None,
        keep_for: None,
        request: None,
        history: None,
        durable: false,
        ends: false,
        listed: None,
        ..write.clone()
    }
}

pub(crate) fn nonce() -> Nonce {
    Nonce(uuid::Uuid::new_v4().as_u128())
}

#[track_caller]
pub(crate) fn done(commit: Commit) -> u64 {
    match commit {
        Commit::Done(revision) => revision.0,
        other @ (Commit::Conflict(_) | Commit::Gone) => panic!("expected Done, found {other:?}"),
    }
}

#[track_caller]
pub(crate) fn conflict(commit: Commit) -> Stored {
    match commit {
        Commit::Conflict(stored) => stored,
        other @ (Commit::Done(_) | Commit::Gone) => panic!("expected Conflict, found {other:?}"),
    }
}

/// No wait for a store is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Commits when the store takes it: what failed may be sent again.
pub(crate) async fn commit_at_last(store: &Redis, write: &Write) -> Commit {
    let commit = async || store.commit(write).await;
    eventually(PATIENCE, "the store takes the commit", commit).await
}

/// Where a test keeps its tasks: two folders that the store has to make lie above the file.
#[derive(Debug)]
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(TempDir::new())
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.0.path().join("deep")
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder().join("deeper").join("tasks.redb")
    }
}
