//! The store that replicas share: Redis 6.2 or newer, one server, a primary that Sentinels name, or
//! a cluster.
//!
//! Every change is one script on the keys of one bucket, and so of one server; every command is a
//! complete step, sent once. Every key has an expiry but one: the hash `{ns:meta}`, which holds what
//! is true of the namespace for good (the number of buckets, the caller key, what it serves).

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use redis::Value;
use redis::streams::StreamRangeReply;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::error::StoreError;
use super::random::random_bytes;
use super::{
    Beat, ChangeEvent, Changes, Commit, Dead, Health, LOG_LENGTH, Store, Stored, Version, Write,
};
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use address::Target;
use buckets::{Buckets, Written};
use durable::Durable;
use follow::Follower;
use health::Watchman;
use keys::Keys;
use link::{Link, Script};
use log::Edge;
use reach::Reach;
use replies::{UNREADABLE, get, outcome, parse_id, stored};
use scripts::Scripts;
use topology::Topology;

pub use durable::Wait;
pub use error::OpenError;
pub use keys::{Namespace, bucket_of};
pub use open::Options;
pub use reach::Tls;

mod address;
mod buckets;
mod cluster;
mod dry_run;
mod durable;
mod error;
mod follow;
mod health;
mod keys;
mod kv;
mod link;
mod list;
mod log;
mod map;
mod open;
mod reach;
mod replies;
mod scripts;
mod sentinel;
mod topology;

/// The Redis store.
pub struct Redis {
    keys: Keys,
    link: Arc<Link>,
    /// For results above the record's size: they must not hold up everybody's commands.
    bulk: Link,
    /// For durable writes, where more than the server's word is asked for.
    durable: Option<Durable>,
    commit: Script,
    beat: Script,
    notes: Scripts,
    /// Where the next look at the due indexes begins.
    due_next: AtomicU16,
    /// Only for new followers to start from: the follower holds the sending end, so that they see
    /// its end.
    changes: broadcast::Receiver<ChangeEvent>,
    /// On a cluster: what this replica wrote is looked for at once.
    written: Option<Arc<Written>>,
    health: watch::Receiver<Health>,
    _upkeep: DropGuard,
}

impl Redis {
    /// Connects, examines every server and starts to follow the change log on `tasks`, until
    /// `stop` or until the store is dropped.
    pub async fn open(
        options: &Options,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, OpenError> {
        let target = Target::parse(&options.url).ok_or(OpenError::Url)?;
        let reach = Reach::new(options.tls.clone());
        let topology = Arc::new(Topology::find(target, reach).await?);
        let is_cluster = topology.is_cluster();
        let buckets = if is_cluster { keys::BUCKETS } else { 1 };
        let keys = Keys::new(&options.namespace, buckets);
        open::examine_all(&topology, &keys, options).await?;
        let link = Arc::new(Link::new(Arc::clone(&topology), options.command_timeout));
        let (sender, changes) = broadcast::channel(LOG_LENGTH);
        // Read before anybody can follow, so that nothing falls between.
        let (follow, written): (Following, _) = if is_cluster {
            let started = Buckets::start(Arc::clone(&link), keys.clone(), sender).await;
            let (buckets, written) = started.map_err(OpenError::Log)?;
            (Box::pin(buckets.run()), Some(written))
        } else {
            let log = keys.log(0);
            let end: Result<StreamRangeReply, _> =
                link.query(&log, &log::edge(&log, Edge::Last)).await;
            let last = log::position(&end.map_err(OpenError::Log)?).unwrap_or_default();
            let follower = Follower {
                topology: Arc::clone(&topology),
                log,
                last,
                changes: sender,
            };
            (Box::pin(follower.run()), None)
        };
        let (sender, health) = watch::channel(Health::Good);
        let watchman = Watchman {
            link: Arc::clone(&link),
            topology: Arc::clone(&topology),
            allow_eviction: options.allow_eviction,
            every: options.check_interval,
            health: sender,
        };
        let (durable, worker) = options
            .wait
            .map(|wait| Durable::new(Arc::clone(&topology), wait, options.command_timeout))
            .unzip();
        let worker = async {
            if let Some(worker) = worker {
                worker.run().await;
            }
        };
        let bulk_timeout = BULK_TIMEOUT.max(options.command_timeout);
        let bulk = Link::new(Arc::clone(&topology), bulk_timeout);
        let stop = stop.child_token();
        let stopped = stop.clone();
        tasks.spawn(async move {
            let upkeep = async { tokio::join!(follow, topology.keep(), watchman.run(), worker) };
            stopped.run_until_cancelled(upkeep).await;
        });
        Ok(Self {
            keys,
            link,
            bulk,
            durable,
            commit: Script::new(include_str!("commit.lua")),
            beat: Script::new(include_str!("beat.lua")),
            notes: Scripts::new(),
            due_next: AtomicU16::new(0),
            changes,
            written,
            health,
            _upkeep: stop.drop_guard(),
        })
    }

    fn fill_commit(&self, command: &mut redis::Cmd, write: &Write) {
        let leave = write
            .drop_from
            .as_ref()
            .filter(|left| Some(*left) != write.keep_for.as_ref());
        let indexes = || leave.into_iter().chain(&write.keep_for);
        let bucket = self.keys.bucket(write.id);
        let list = (write.listed && write.expected.is_none())
            .then(|| self.keys.list(bucket, &write.caller));
        command
            .arg(4 + indexes().count() + usize::from(list.is_some()))
            .arg(self.keys.task(write.id))
            .arg(self.keys.request(write.id))
            .arg(self.keys.due(bucket))
            .arg(self.keys.log(bucket));
        for incarnation in indexes() {
            command.arg(self.keys.index(bucket, incarnation));
        }
        command.arg(&list);
        match write.expected {
            None => command.arg("").arg("").arg(1),
            Some(Version { revision, nonce }) => command
                .arg(revision.0)
                .arg(&nonce.0.to_be_bytes()[..])
                .arg(revision.0.saturating_add(1)),
        };
        command
            .arg(&write.nonce.0.to_be_bytes()[..])
            .arg(&write.caller.as_bytes()[..])
            .arg(write.record.as_ref())
            .arg(write.expires_ms);
        match write.due_ms {
            None => command.arg(""),
            Some(due_ms) => command.arg(due_ms),
        };
        command
            .arg(write.id.to_string())
            .arg(u8::from(leave.is_some()))
            .arg(u8::from(write.keep_for.is_some()))
            .arg(LOG_LENGTH)
            .arg(u8::from(list.is_some()))
            .arg(u8::from(write.ends));
        if let Some(request) = &write.request {
            command.arg(request.as_ref());
        }
    }

    /// Several commands where there are many: none holds up the others for long.
    async fn scan(&self, key: &str) -> Result<BTreeSet<TaskId>, StoreError> {
        let mut cursor = 0_u64;
        let mut ids = BTreeSet::new();
        loop {
            let mut command = redis::cmd("SSCAN");
            command.arg(key).arg(cursor).arg("COUNT").arg(SCAN);
            let (next, some): (u64, Vec<String>) = self.link.query(key, &command).await?;
            for id in some.iter().map(|text| parse_id(text)) {
                ids.insert(id?);
            }
            if next == 0 {
                return Ok(ids);
            }
            cursor = next;
        }
    }

    /// The overdue of one bucket, with when they were due.
    async fn due_in(
        &self,
        bucket: u16,
        now_ms: u64,
        limit: usize,
    ) -> Result<Vec<(u64, TaskId)>, StoreError> {
        let key = self.keys.due(bucket);
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command
            .arg(&key)
            .arg("-inf")
            .arg(now_ms)
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(0)
            .arg(limit);
        let found: Vec<(String, u64)> = self.link.query(&key, &command).await?;
        let found = found.iter();
        found
            .map(|(text, due_ms)| Ok((*due_ms, parse_id(text)?)))
            .collect()
    }
}

impl fmt::Debug for Redis {
    /// The library's own would show the address with its user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Redis {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        let key = self.keys.task(write.id);
        let fill = |command: &mut redis::Cmd| self.fill_commit(command, write);
        let reply: Vec<Value> = match self.durable.as_ref().filter(|_| write.durable) {
            Some(durable) => durable.call(&self.commit, &key, fill).await?,
            None => self.link.call(&self.commit, &key, fill).await?,
        };
        if let Some(written) = self.written.as_ref().filter(|_| write.expected.is_some()) {
            written.note(self.keys.bucket(write.id));
        }
        outcome(reply).ok_or(UNREADABLE)
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        let key = self.keys.task(id);
        let mut command = redis::cmd("HMGET");
        command.arg(&key).arg("r").arg("w").arg("c").arg("d");
        let fields: Vec<Value> = self.link.query(&key, &command).await?;
        if fields.iter().all(|field| *field == Value::Nil) {
            return Ok(None);
        }
        stored(fields.into_iter()).map(Some).ok_or(UNREADABLE)
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        get(&self.link, &self.keys.request(id)).await
    }

    /// Waits up to five seconds: a large result takes longer than any other command.
    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let key = self.keys.result(id, fence);
        let mut command = redis::cmd("SET");
        command
            .arg(&key)
            .arg(result.as_ref())
            .arg("PXAT")
            .arg(expires_ms);
        self.bulk.query(&key, &command).await
    }

    /// Waits up to five seconds.
    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        get(&self.bulk, &self.keys.result(id, fence)).await
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        let scans = self.keys.buckets().map(|bucket| async move {
            let key = self.keys.index(bucket, incarnation);
            self.scan(&key).await
        });
        let found = try_join_all(scans).await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        let step = DUE_BUCKETS.min(self.keys.count());
        let from = self.due_next.fetch_add(step, Ordering::Relaxed);
        let looks = (0..step)
            .map(|ahead| from.wrapping_add(ahead))
            .map(|bucket| bucket.checked_rem(self.keys.count()).unwrap_or(0))
            .map(|bucket| self.due_in(bucket, now_ms, limit));
        let mut due = Vec::new();
        let mut failed = None;
        for found in join_all(looks).await {
            match found {
                Ok(mut found) => due.append(&mut found),
                Err(error) => failed = Some(error),
            }
        }
        // A slot that nobody serves does not keep the tasks of the others waiting.
        if let Some(error) = failed.filter(|_| due.is_empty()) {
            return Err(error);
        }
        due.sort_unstable_by_key(|(due_ms, _)| *due_ms);
        due.truncate(limit);
        Ok(due.into_iter().map(|(_, id)| id).collect())
    }

    async fn listed(&self, caller: &Caller) -> Result<Vec<(u64, TaskId)>, StoreError> {
        self.list(caller).await
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        let bucket = self.keys.bucket(id);
        let due = self.keys.due(bucket);
        let mut command = redis::cmd("ZREM");
        command.arg(&due).arg(id.to_string());
        self.link.query::<u64>(&due, &command).await?;
        if let Some(incarnation) = incarnation {
            let index = self.keys.index(bucket, incarnation);
            let mut command = redis::cmd("SREM");
            command.arg(&index).arg(id.to_string());
            self.link.query::<u64>(&index, &command).await?;
        }
        Ok(())
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        let fill = |command: &mut redis::Cmd| {
            command
                .arg(1)
                .arg(self.keys.live())
                .arg(incarnation.map_or("", Incarnation::as_str))
                .arg(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))
                .arg(MEMBERS)
                .arg(u64::try_from(LIVE.as_millis()).unwrap_or(u64::MAX));
        };
        let (now_ms, members): (u64, Vec<(String, u64)>) =
            self.link.call(&self.beat, self.keys.live(), fill).await?;
        let mut beat = Beat {
            now_ms,
            ..Beat::default()
        };
        for (name, end_ms) in members {
            let incarnation = Incarnation::from_text(&name);
            if end_ms > now_ms {
                beat.living.push(incarnation);
            } else {
                beat.dead.push(Dead {
                    incarnation,
                    since_ms: end_ms,
                });
            }
        }
        Ok(beat)
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        let live = self.keys.live();
        let mut command = redis::cmd("ZREM");
        command.arg(live).arg(incarnation.as_str());
        self.link.query::<u64>(live, &command).await.map(drop)
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        let meta = self.keys.meta();
        let mut command = redis::cmd("HSETNX");
        command
            .arg(meta)
            .arg("caller_key")
            .arg(&random_bytes::<32>()?[..]);
        self.link.query::<u64>(meta, &command).await?;
        // Whoever came first made it: what stands counts.
        let mut command = redis::cmd("HGET");
        command.arg(meta).arg("caller_key");
        let key: Option<Vec<u8>> = self.link.query(meta, &command).await?;
        key.and_then(|key| key.try_into().ok()).ok_or(UNREADABLE)
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.resubscribe())
    }

    fn health(&self) -> Health {
        *self.health.borrow()
    }
}

/// What follows the change log until the store is closed.
type Following = Pin<Box<dyn Future<Output = ()> + Send>>;

/// For a result: 32 MiB at 7 MB a second.
const BULK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the live set outlives the last heartbeat of anybody. What a dead owner carried that
/// was forgotten here is found through the due index.
const LIVE: Duration = Duration::from_hours(1);

/// The most members that one heartbeat reports, those first whose leases ended first; of more
/// dead the rest comes with the next ones.
const MEMBERS: usize = 512;

/// Members that one step of a scan looks at.
const SCAN: usize = 4096;

/// Buckets whose due index is looked at in one call.
const DUE_BUCKETS: u16 = 8;
