//! The store that replicas share: Redis 6.2 or newer, on one server, behind Sentinels or on a cluster.
//!
//! Every change is one script on the keys of one bucket, and so on one server. Every command is a complete step and
//! is sent once. Every key expires except the hash `{ns:meta}`, which holds the permanent facts of the namespace: the
//! number of buckets, the caller key and the server that the namespace serves.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::Value;
use redis::streams::StreamRangeReply;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::error::StoreError;
use super::{
    Beat, ChangeEvent, Changes, Commit, Dead, Ended, LOG_LENGTH, ListPlace, Store, StoreHealth,
    Stored, Write,
};
use crate::task::history::HistoryPlace;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use buckets::{Buckets, OwnWrites};
use durable::Durable;
use facts::Facts;
use follow::Follower;
use health::PolicyWatch;
use keys::Keys;
use link::{Link, Script};
use log::Edge;
use replies::{UNREADABLE, get, outcome, parse_id, stored};
use scripts::Scripts;

pub use connector::RedisTls;
pub use durable::Wait;
pub use error::RedisOpenError;
pub use keys::{Namespace, bucket_of};
pub use moving::{Moved, move_namespace};
pub use open::RedisOptions;

mod address;
mod buckets;
mod cluster;
mod commit;
mod connector;
mod dry_run;
mod due;
mod durable;
mod error;
mod facts;
mod follow;
mod health;
mod history;
mod keys;
mod kv;
mod link;
mod list;
mod log;
mod map;
mod moving;
mod open;
mod replies;
mod rights;
mod scripts;
mod sentinel;
mod topology;

/// The Redis store.
pub struct Redis {
    keys: Keys,
    link: Arc<Link>,
    /// A separate connection for large values, which must not hold up other commands.
    bulk: Link,
    /// Durable writes, if the operator asked for confirmation by replicas or the disk.
    durable: Option<Durable>,
    commit: Script,
    beat: Script,
    notes: Scripts,
    facts: Facts,
    /// The bucket where the next read of the due indexes begins.
    due_next: AtomicU16,
    /// New followers subscribe through this receiver. The task that reads the log holds the sender, so that followers
    /// see its end.
    changes: broadcast::Receiver<ChangeEvent>,
    /// On a cluster: the buckets that this replica wrote, whose logs are read at once.
    written: Option<Arc<OwnWrites>>,
    health: watch::Receiver<StoreHealth>,
    _upkeep: DropGuard,
}

impl Redis {
    /// Connects, examines every server, and follows the change log on `tasks` until `stop` or until the store is
    /// dropped.
    pub async fn open(
        options: &RedisOptions,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, RedisOpenError> {
        let (topology, keys) = open::find(options).await?;
        let topology = Arc::new(topology);
        let is_cluster = topology.is_cluster();
        open::examine_all(&topology, &keys, options).await?;
        let link = Arc::new(Link::new(Arc::clone(&topology), options.command_timeout));
        let (sender, changes) = broadcast::channel(LOG_LENGTH);
        // Read the end of the log before the first subscription, so that no change is lost in between.
        let (follow, written): (Following, _) = if is_cluster {
            let started = Buckets::start(Arc::clone(&link), keys.clone(), sender).await;
            let (buckets, written) = started.map_err(RedisOpenError::Log)?;
            (Box::pin(buckets.run()), Some(written))
        } else {
            let log = keys.log(0);
            let end: Result<StreamRangeReply, _> =
                link.query(&log, &log::edge(&log, Edge::Last)).await;
            let last = log::position(&end.map_err(RedisOpenError::Log)?).unwrap_or_default();
            let follower = Follower {
                topology: Arc::clone(&topology),
                log,
                last,
                changes: sender,
            };
            (Box::pin(follower.run()), None)
        };
        let (sender, health) = watch::channel(StoreHealth::Good);
        let policy_watch = PolicyWatch {
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
        let bulk = Link::shared(Arc::clone(&topology), bulk_timeout);
        let facts = Facts::new(keys.count(), options);
        let stop = stop.child_token();
        let stopped = stop.clone();
        tasks.spawn(async move {
            let upkeep =
                async { tokio::join!(follow, topology.keep(), policy_watch.run(), worker) };
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
            facts,
            due_next: AtomicU16::new(0),
            changes,
            written,
            health,
            _upkeep: stop.drop_guard(),
        })
    }

    /// Reads a set in several commands, so that no single command holds up the others for long.
    async fn scan(&self, key: &str) -> Result<BTreeSet<TaskId>, StoreError> {
        let mut cursor = 0_u64;
        // A scan may return a member twice, and the set drops the second one.
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
}

impl fmt::Debug for Redis {
    /// Written by hand, because the library's output shows the address with its user.
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
        let reply: Value = match self.durable.as_ref().filter(|_| write.durable) {
            Some(durable) => durable.call(&self.commit, &key, fill).await?,
            None => self.link.call(&self.commit, &key, fill).await?,
        };
        // Noted after the answer: a look before the write would find nothing.
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
        // HMGET has no other answer for a key that does not exist.
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

    /// Waits up to five seconds, because a large value takes longer than other commands.
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
        self.read_due(now_ms, limit).await
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        self.list(caller, after, limit).await
    }

    /// Waits up to five seconds, as for a large value.
    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        self.read_ended(after).await
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
        // A crash between the two commands leaves the second index, where a later look finds the task again.
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
        let (now_ms, members, is_new): (u64, Vec<(String, u64)>, bool) =
            self.link.call(&self.beat, self.keys.live(), fill).await?;
        self.facts.keep(&self.link, &self.keys, is_new).await;
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
        self.facts.caller_key(&self.link, &self.keys).await
    }

    async fn forget_caller_key(&self) -> Result<(), StoreError> {
        self.facts.forget_caller_key(&self.link, &self.keys).await
    }

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        let bucket = self.keys.bucket(id);
        let log = self.keys.log(bucket);
        let fill = |command: &mut redis::Cmd| {
            let command = command.arg(1).arg(&log).arg(id.to_string());
            command.arg(LOG_LENGTH).arg(log::TOLD_MS);
        };
        self.link
            .call::<u64>(&self.notes.tell, &log, fill)
            .await
            .map(drop)
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.resubscribe())
    }

    fn health(&self) -> StoreHealth {
        *self.health.borrow()
    }
}

/// The task that follows the change log until the store is closed.
type Following = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The timeout of one large value: 32 MiB at 7 MB a second.
const BULK_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that the live set outlives the last heartbeat of any replica. The tasks of a dead owner that is no
/// longer in the set are found through the due index.
const LIVE: Duration = Duration::from_hours(1);

/// The most members that one heartbeat reports, in the order in which their leases end. The next heartbeats report the
/// rest.
const MEMBERS: usize = 512;

/// The number of members that one step of a scan reads.
const SCAN: usize = 4096;
