//! The store that replicas share: Redis 6.2 or newer, a single server or a primary.
//!
//! Every change is one script on the keys of one bucket; every command is a complete step, sent
//! once. Every key has an expiry but one: the hash `{ns:meta}`, which holds what is true of the
//! namespace for good (the caller key, what it serves).

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{InfoDict, Value};
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::judge::random_key;
use super::{
    Beat, Changes, Commit, Dead, LOG_LENGTH, Nonce, Revision, Seen, Store, StoreError, Stored,
    Version, Write,
};
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use follow::{Edge, Follower};
use keys::Keys;
use link::{Link, Script};

pub use keys::{Namespace, bucket_of};
pub use open::{OpenError, Options, Tls};

mod follow;
mod keys;
mod link;
mod open;

/// The Redis store.
pub struct Redis {
    keys: Keys,
    link: Link,
    /// For results above the record's size: they must not hold up everybody's commands.
    bulk: Link,
    commit: Script,
    beat: Script,
    /// Only for new followers to start from: the follower holds the sending end, so that they see
    /// its end.
    changes: broadcast::Receiver<Seen>,
    _follower: DropGuard,
}

impl Redis {
    /// Connects, examines the server and starts to follow the change log on `tasks`, until `stop`
    /// or until the store is dropped.
    pub async fn open(
        options: &Options,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, OpenError> {
        let keys = Keys::single(&options.namespace);
        let (client, server) = open::client(options)?;
        let unreachable = |cause| OpenError::Unreachable {
            server: server.clone(),
            cause,
        };
        let mut connection = open::connect(&client, &server).await?;
        open::examine(&mut connection, &server, options).await?;
        open::try_scripts(&mut connection, &server).await?;
        open::claim(&mut connection, &server, &keys, options).await?;
        // Read before anybody can follow, so that nothing falls between.
        let last = follow::edge(&mut connection, &keys.log(), Edge::Last).await;
        let last = last.map_err(unreachable)?.unwrap_or_default();
        let (sender, changes) = broadcast::channel(LOG_LENGTH);
        let link = Link::new(client.clone(), options.command_timeout).map_err(unreachable)?;
        let follower = Follower {
            client: client.clone(),
            log: keys.log(),
            last,
            changes: sender,
            left: link.left(),
        };
        let stop = stop.child_token();
        tasks.spawn(follower.run(stop.clone()));
        Ok(Self {
            link,
            bulk: Link::new(client, BULK_TIMEOUT.max(options.command_timeout))
                .map_err(unreachable)?,
            keys,
            commit: Script::new(include_str!("commit.lua")),
            beat: Script::new(include_str!("beat.lua")),
            changes,
            _follower: stop.drop_guard(),
        })
    }

    /// The eviction policy as it is now, where the server tells it. It was `noeviction` at open
    /// and somebody may have changed it since; anything else loses tasks.
    pub async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("INFO");
        let info: InfoDict = self.link.query(command.arg("memory")).await?;
        Ok(info.get(open::POLICY))
    }

    fn fill_commit(&self, command: &mut redis::Cmd, write: &Write) {
        let leave = write
            .drop_from
            .as_ref()
            .filter(|left| Some(*left) != write.keep_for.as_ref());
        let indexes = || leave.into_iter().chain(&write.keep_for);
        command
            .arg(4 + indexes().count())
            .arg(self.keys.task(write.id))
            .arg(self.keys.request(write.id))
            .arg(self.keys.due())
            .arg(self.keys.log());
        for incarnation in indexes() {
            command.arg(self.keys.index(incarnation));
        }
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
            .arg(LOG_LENGTH);
        if let Some(request) = &write.request {
            command.arg(request.as_ref());
        }
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
        let reply: Vec<Value> = self
            .link
            .call(&self.commit, |command| self.fill_commit(command, write))
            .await?;
        outcome(reply).ok_or(UNREADABLE)
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        let mut command = redis::cmd("HMGET");
        command
            .arg(self.keys.task(id))
            .arg("r")
            .arg("w")
            .arg("c")
            .arg("d");
        let fields: Vec<Value> = self.link.query(&command).await?;
        if fields.iter().all(|field| *field == Value::Nil) {
            return Ok(None);
        }
        stored(fields.into_iter()).map(Some).ok_or(UNREADABLE)
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(self.keys.request(id));
        Ok(self
            .link
            .query::<Option<Vec<u8>>>(&command)
            .await?
            .map(Bytes::from))
    }

    /// Waits up to five seconds: a large result takes longer than any other command.
    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let mut command = redis::cmd("SET");
        command
            .arg(self.keys.result(id, fence))
            .arg(result.as_ref())
            .arg("PXAT")
            .arg(expires_ms);
        self.bulk.query(&command).await
    }

    /// Waits up to five seconds.
    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(self.keys.result(id, fence));
        Ok(self
            .bulk
            .query::<Option<Vec<u8>>>(&command)
            .await?
            .map(Bytes::from))
    }

    /// Several commands where there are many: none holds up the others for long.
    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        let key = self.keys.index(incarnation);
        let mut cursor = 0_u64;
        let mut ids = BTreeSet::new();
        loop {
            let mut command = redis::cmd("SSCAN");
            command.arg(&key).arg(cursor).arg("COUNT").arg(SCAN);
            let (next, some): (u64, Vec<String>) = self.link.query(&command).await?;
            for id in parse_ids(&some) {
                ids.insert(id?);
            }
            if next == 0 {
                return Ok(ids.into_iter().collect());
            }
            cursor = next;
        }
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command
            .arg(self.keys.due())
            .arg("-inf")
            .arg(now_ms)
            .arg("LIMIT")
            .arg(0)
            .arg(limit);
        let ids: Vec<String> = self.link.query(&command).await?;
        parse_ids(&ids).collect()
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        let mut command = redis::cmd("ZREM");
        command.arg(self.keys.due()).arg(id.to_string());
        self.link.query::<u64>(&command).await?;
        if let Some(incarnation) = incarnation {
            let mut command = redis::cmd("SREM");
            command
                .arg(self.keys.index(incarnation))
                .arg(id.to_string());
            self.link.query::<u64>(&command).await?;
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
        let (now_ms, members): (u64, Vec<(String, u64)>) = self.link.call(&self.beat, fill).await?;
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
        let mut command = redis::cmd("ZREM");
        command.arg(self.keys.live()).arg(incarnation.as_str());
        self.link.query::<u64>(&command).await.map(drop)
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        let mut command = redis::cmd("HSETNX");
        command
            .arg(self.keys.meta())
            .arg("caller_key")
            .arg(&random_key()?[..]);
        self.link.query::<u64>(&command).await?;
        // Whoever came first made it: what stands counts.
        let mut command = redis::cmd("HGET");
        command.arg(self.keys.meta()).arg("caller_key");
        let key: Option<Vec<u8>> = self.link.query(&command).await?;
        key.and_then(|key| key.try_into().ok()).ok_or(UNREADABLE)
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.resubscribe())
    }
}

/// The commit script's answer.
fn outcome(reply: Vec<Value>) -> Option<Commit> {
    let mut reply = reply.into_iter();
    match bytes(reply.next()?)?.as_slice() {
        b"done" => Some(Commit::Done(revision(reply.next()?)?)),
        b"conflict" => Some(Commit::Conflict(stored(reply)?)),
        b"gone" => Some(Commit::Gone),
        _ => None,
    }
}

/// The fields r, w, c, d.
fn stored(mut fields: impl Iterator<Item = Value>) -> Option<Stored> {
    let revision = revision(fields.next()?)?;
    let nonce = Nonce(u128::from_be_bytes(bytes(fields.next()?)?.try_into().ok()?));
    let caller = Caller::from_bytes(bytes(fields.next()?)?.try_into().ok()?);
    let record = Bytes::from(bytes(fields.next()?)?);
    Some(Stored {
        version: Version { revision, nonce },
        caller,
        record,
    })
}

fn revision(value: Value) -> Option<Revision> {
    Some(Revision(
        std::str::from_utf8(&bytes(value)?).ok()?.parse().ok()?,
    ))
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    // Anything else is not what our scripts and fields hold, whatever it could be read as.
    if let Value::BulkString(bytes) = value {
        Some(bytes)
    } else {
        None
    }
}

fn parse_ids(texts: &[String]) -> impl Iterator<Item = Result<TaskId, StoreError>> {
    texts
        .iter()
        .map(|text| TaskId::parse(text).ok_or(UNREADABLE))
}

const UNREADABLE: StoreError = StoreError::Corrupt("fields that raincheck does not write");

/// For a new connection, and for the few commands at open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// For a result: 32 MiB at 7 MB a second.
const BULK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the live set outlives the last heartbeat of anybody. What a dead owner carried that
/// was forgotten here is found through the due index.
const LIVE: Duration = Duration::from_hours(1);

/// The most members that one heartbeat reports, those first whose leases ended first; of more
/// dead the rest comes with the next ones.
const MEMBERS: usize = 512;

/// Members that one step of a scan looks at.
const SCAN: usize = 1000;
