//! Where tasks live: the port that every store implements.
//!
//! A store knows revisions and no rules: a record is opaque bytes, every change is one compare-and-set
//! on revision and nonce, and the indexes change in the same write.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::task::history::HistoryPlace;
use crate::task::id::{Caller, Fence, Incarnation, Revision, TaskId};

pub mod absent;
mod compare_and_set;
pub mod embedded;
mod error;
pub mod history;
mod kept_keys;
pub mod key_value;
pub mod kv;
mod leases;
pub mod ledger;
mod list_place;
mod loaded;
mod lost_ends;
pub mod memory;
pub mod observed;
pub mod outbox;
pub mod patience;
pub mod quota;
mod random;
pub mod record;
pub mod redis;
pub mod seal;
pub mod sealed;
mod sealed_value;
pub mod subscriptions;

pub use error::{StoreError, StoreRefusal};
pub use list_place::{ListPlace, in_order};

/// Identifies one write. By its nonce a store recognises a write that is repeated after a lost answer,
/// even when a failover brought an older revision back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub u128);

/// The fields that a compare-and-set compares: both must still be as they were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub revision: Revision,
    pub nonce: Nonce,
}

/// A record as the store holds it.
#[derive(Debug, Clone)]
pub struct Stored {
    pub version: Version,
    pub caller: Caller,
    pub record: Bytes,
}

/// One change of one task. A store applies all of it or nothing.
#[derive(Debug, Clone)]
pub struct Write {
    pub id: TaskId,
    /// `None` creates: the record must not exist yet.
    pub expected: Option<Version>,
    /// The nonce of this write. A retry of the same write uses the same nonce.
    pub nonce: Nonce,
    pub caller: Caller,
    pub record: Bytes,
    /// Unix milliseconds until which the store keeps the record. Every write of a task has the same
    /// expiry, fixed at creation.
    pub expires_ms: u64,
    /// Unix milliseconds from which a replica must look at the task, open or ended; `None` removes it from the due index.
    pub due_ms: Option<u64>,
    /// The incarnation whose index must no longer name this task.
    pub drop_from: Option<Incarnation>,
    /// The incarnation whose index must name this task.
    pub keep_for: Option<Incarnation>,
    /// The request, for a retry or a rerun. The first write that has one keeps it; no later write changes it.
    pub request: Option<Bytes>,
    /// A client will rely on this write. If the operator asked for replicas or the disk to confirm
    /// (`store.wait_*`), the write is `Done` only with that confirmation, and in doubt without it.
    pub durable: bool,
    /// This write ends its task and adds next to nothing, so that a full store accepts it too.
    pub ends: bool,
    /// Only with the end of a task: what the history keeps of it. See [`Store::ended`].
    pub history: Option<HistoryEntry>,
    /// Only with create: whose list names the task while the record exists, its caller's or that of one session of an
    /// anonymous caller. See [`Store::listed`].
    pub listed: Option<Caller>,
}

/// What the history keeps of one task that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    pub entry: Bytes,
    /// Unix milliseconds until which the entry is kept, if it is among the last [`ENDED_LENGTH`].
    pub expires_ms: u64,
}

/// An entry of the history as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub place: HistoryPlace,
    pub id: TaskId,
    pub entry: Bytes,
}

/// The outcome of a [`Write`].
#[derive(Debug, Clone)]
pub enum Commit {
    /// The store wrote it now, or earlier under the same nonce. Holds the new revision.
    Done(Revision),
    /// Another write came first, so nothing changed. Holds the current record. A write in doubt that is
    /// repeated and conflicts may have happened before that other write.
    Conflict(Stored),
    /// There is no record (expired, or lost by the store), so nothing changed.
    Gone,
}

/// The answer to a [`Store::beat`].
#[derive(Debug, Clone, Default)]
pub struct Beat {
    /// Unix milliseconds, by the store's own clock if it has one (Redis), else by the system's.
    pub now_ms: u64,
    /// The incarnations whose leases run.
    pub living: Vec<Incarnation>,
    /// The incarnations whose leases have ended and whose indexes are not empty yet, longest dead first.
    pub dead: Vec<Dead>,
}

/// An incarnation whose lease has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub incarnation: Incarnation,
    /// Unix milliseconds, by the clock of [`Beat::now_ms`].
    pub since_ms: u64,
}

/// The health of the store: whether it keeps the data that it gets, as far as it can detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreHealth {
    Good,
    /// The store refused the last write that needs room.
    Full,
    /// The store works and may lose tasks. Holds the reason, one sentence for the operator.
    Degraded(&'static str),
}

/// A committed change of one task, or a [notification](Store::tell) of a replica under this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedTask {
    pub id: TaskId,
    /// Zero where nothing was committed.
    pub revision: Revision,
}

/// The change log, from the moment of subscription on, of all replicas that share the store.
///
/// Creations are not in the log, because no component watches a task before it exists.
pub struct Changes {
    receiver: broadcast::Receiver<ChangeEvent>,
}

/// An event that [`Changes::next`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeEvent {
    Changed(ChangedTask),
    /// Some changes were lost: the follower must read the records again that it watches.
    Missed,
    /// The store was closed; no change follows.
    Closed,
}

impl Changes {
    /// A store whose source lost changes sends [`ChangeEvent::Missed`] itself.
    pub fn new(receiver: broadcast::Receiver<ChangeEvent>) -> Self {
        Self { receiver }
    }

    /// Cancel safe: dropped before it resolves, no change is lost.
    pub async fn next(&mut self) -> ChangeEvent {
        match self.receiver.recv().await {
            Ok(seen) => seen,
            Err(RecvError::Lagged(_)) => ChangeEvent::Missed,
            Err(RecvError::Closed) => ChangeEvent::Closed,
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

/// The number of changes that the log keeps. A follower that falls further behind gets [`ChangeEvent::Missed`].
pub const LOG_LENGTH: usize = 4096;

/// The number of entries of the history that a store keeps, at least about as many: they are read before they go, and kept
/// together under names ([`history`]).
pub const ENDED_LENGTH: usize = 16_384;

/// Where tasks live.
///
/// No method waits longer than the store's command timeout (results may be large and have a longer
/// one). Waiting for a store that is away is the caller's matter: see [`patience`].
///
/// A write whose future is dropped before it resolves is in doubt, as after
/// [`StoreError::Unavailable`].
#[async_trait]
pub trait Store: kv::KvStore {
    /// Applies one write.
    ///
    /// Once a create is `Done`, a `load` on any replica finds the task. Before that the task may not exist, so no
    /// client may be notified of it.
    ///
    /// After a crash the whole write has happened (record, expiry, request, due, indexes, log) or
    /// nothing of it.
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError>;

    /// The record as last committed; `None` if it was never created, has expired or was lost.
    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError>;

    /// The request that was written first.
    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError>;

    /// Writes a result that is too large for the record, before the commit that names it.
    ///
    /// The fence is part of the key, so that an owner that lost its task cannot replace the result of
    /// its successor.
    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError>;

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError>;

    /// The tasks that this incarnation must still act on.
    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError>;

    /// The tasks whose `due_ms` has come at `now_ms`, open or ended, those first whose time came first, at most `limit`.
    ///
    /// The call reads no records, and costs what it names: some dozen bytes for each task. What moves in the index
    /// meanwhile may be missing until the next call. A store on several servers may look at another part of its
    /// tasks in each call (Redis Cluster: an eighth), so that repeated calls see all tasks.
    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError>;

    /// The tasks that were created as `listed` for this caller, or session, and have not expired: those that expire last
    /// first, at most `limit`, from the first that comes after this place on.
    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError>;

    /// The entries of the history behind these places, in the order of the commits of each bucket: the last
    /// [`ENDED_LENGTH`] at most. A bucket without a place is read from its first entry on.
    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError>;

    /// Removes a task from the due index and from this incarnation's index: its record is gone or cannot
    /// be read. A record that exists stays, and its next commit enters it in the indexes again.
    async fn forget(&self, id: TaskId, incarnation: Option<&Incarnation>)
    -> Result<(), StoreError>;

    /// Renews this incarnation's lease and reports the leases that run and that have ended.
    ///
    /// A lease of zero ends now, so that other replicas take over the tasks in its index at once.
    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError>;

    /// Removes an incarnation from the live set: it ended in good order, or its index is empty.
    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError>;

    /// The key under which callers are hashed: a secret of this store, made at first use and the same
    /// for every replica.
    async fn caller_key(&self) -> Result<[u8; 32], StoreError>;

    /// Removes that key, which is kept sealed now. A store that keeps the key in its own process or file leaves it.
    async fn forget_caller_key(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Enters the id in the change log although no task of that id changes, so that replicas that wait for a
    /// value read the value: see [`kv::Name::told_as`].
    ///
    /// Once this returns, every follower sees the change, or [`ChangeEvent::Missed`].
    async fn tell(&self, id: TaskId) -> Result<(), StoreError>;

    /// Follows the commits from now on.
    fn changes(&self) -> Changes;

    /// The health as of the last check; does not wait.
    fn health(&self) -> StoreHealth {
        StoreHealth::Good
    }
}
