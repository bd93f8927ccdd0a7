//! Where tasks live: the port that every store implements.
//!
//! The store knows revisions, never rules: a record is opaque bytes, every change is one
//! compare-and-set on revision and nonce, and the indexes change in the same write.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::task::id::{Caller, Fence, Incarnation, Revision, TaskId};

pub mod embedded;
mod error;
mod judge;
mod leases;
pub mod ledger;
pub mod memory;
pub mod notebook;
pub mod notes;
pub mod quota;
pub mod record;
pub mod redis;
pub mod seal;

pub use error::{Refusal, StoreError};

/// Identifies one write, so that a retry of the same write after a lost answer is told apart from
/// somebody else's, also after a failover brought an old revision back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub u128);

/// What a compare-and-set compares: both must still be as they were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub revision: Revision,
    pub nonce: Nonce,
}

/// A record as it was found.
#[derive(Debug, Clone)]
pub struct Stored {
    pub version: Version,
    pub caller: Caller,
    pub record: Bytes,
}

/// One change of one task: all of it happens or none of it.
#[derive(Debug, Clone)]
pub struct Write {
    pub id: TaskId,
    /// `None` creates: the record must not exist yet.
    pub expected: Option<Version>,
    /// The nonce of this write. A retry of the same write uses the same nonce.
    pub nonce: Nonce,
    pub caller: Caller,
    pub record: Bytes,
    /// Unix milliseconds after which the record may be forgotten; never sooner. Fixed at creation:
    /// the same in every write of a task.
    pub expires_ms: u64,
    /// Unix milliseconds at which an open task is overdue; `None` takes it off the due index.
    pub due_ms: Option<u64>,
    /// Incarnations whose index must no longer name this task.
    pub drop_from: Option<Incarnation>,
    /// Incarnation whose index must name this task.
    pub keep_for: Option<Incarnation>,
    /// The request, for a retry or a rerun. Written with create, never changed.
    pub request: Option<Bytes>,
    /// Somebody will rely on it: where the operator asked for more than the store's own word (a
    /// replica's, a disk's), it is `Done` only with that, and else in doubt.
    pub durable: bool,
    /// It ends its task and adds next to nothing: a full store takes it, and all else only whole or not
    /// at all.
    pub ends: bool,
    /// With create: [`Store::listed`] names it to its caller, for as long as the record stands.
    pub listed: bool,
}

/// What became of a [`Write`].
#[derive(Debug, Clone)]
pub enum Commit {
    /// Written now, or found written already under the same nonce. The new revision.
    Done(Revision),
    /// Another write is the last one: nothing was changed, here is what stands. A retry in doubt
    /// that meets this may have been written before the other.
    Conflict(Stored),
    /// The record is not there (expired, or lost by the store): nothing was written.
    Gone,
}

/// The answer to a [`Store::beat`].
#[derive(Debug, Clone, Default)]
pub struct Beat {
    /// The store's own clock where it has one (Redis), else the system's; Unix milliseconds.
    pub now_ms: u64,
    /// Whose lease runs.
    pub living: Vec<Incarnation>,
    /// Whose lease has ended and whose index was not yet emptied, longest dead first.
    pub dead: Vec<Dead>,
}

/// An incarnation whose lease has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub incarnation: Incarnation,
    /// Unix milliseconds, by the clock of [`Beat::now_ms`].
    pub since_ms: u64,
}

/// Whether a store can be relied on, as far as it knows by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Good,
    /// It works, and may lose tasks. Why, in a sentence for the operator.
    Degraded(&'static str),
}

/// A change that somebody committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub id: TaskId,
    pub revision: Revision,
}

/// The change log from now on, of all replicas that share the store; creations are not in it.
pub struct Changes {
    receiver: broadcast::Receiver<Seen>,
}

/// What [`Changes::next`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Changed(Change),
    /// Changes were missed: whoever follows must read again what it cares about.
    Missed,
    /// The store was closed.
    Closed,
}

impl Changes {
    /// A store whose own source lost changes sends [`Seen::Missed`] itself.
    pub fn new(receiver: broadcast::Receiver<Seen>) -> Self {
        Self { receiver }
    }

    /// Cancel safe: dropped before it resolves, no change is lost.
    pub async fn next(&mut self) -> Seen {
        match self.receiver.recv().await {
            Ok(seen) => seen,
            Err(RecvError::Lagged(_)) => Seen::Missed,
            Err(RecvError::Closed) => Seen::Closed,
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

/// A change log that was not followed for so long is read again from the records themselves.
pub const LOG_LENGTH: usize = 4096;

/// Where tasks live.
///
/// No method waits longer than the store's own command timeout (for results, which may be large,
/// a longer one); patience belongs to the caller.
/// Every method is cancel safe in this sense: dropped before it resolves, a write is in doubt as
/// after [`StoreError::Unavailable`].
#[async_trait]
pub trait Store: notes::Notes {
    /// Once a create is `Done`, a `load` on any replica finds the task. Before that it may not
    /// exist: no client may hear of it.
    ///
    /// After a crash the write has happened whole (record, expiry, request, due, indexes, log) or
    /// not at all.
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError>;

    /// The record as last committed; `None` if it never was, has expired or was lost.
    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError>;

    /// The request that was written with create.
    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError>;

    /// Keeps a result that is too large for the record, before the commit that names it. Under
    /// another fence it is another result: a late writer cannot replace its successor's.
    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError>;

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError>;

    /// Ids for which this incarnation must still do something.
    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError>;

    /// Open tasks that are overdue at `now_ms`, most overdue first, at most `limit`.
    ///
    /// A store that is spread over several servers may look at another part of its tasks at each
    /// call (on Redis Cluster an eighth): whoever asks again and again sees all of them. Cheap
    /// enough to be called every second.
    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError>;

    /// The tasks that were created to be listed for this caller and have not expired, in no order, each
    /// with when it does.
    async fn listed(&self, caller: &Caller) -> Result<Vec<(u64, TaskId)>, StoreError>;

    /// Takes an id whose record no longer exists, or cannot be read, off the due index, and off this
    /// incarnation's. The record stays; its next commit enters it again.
    async fn forget(&self, id: TaskId, incarnation: Option<&Incarnation>)
    -> Result<(), StoreError>;

    /// Renews this incarnation's lease and tells whose runs and whose has ended. A lease of zero
    /// ends it now: whoever is left in its index may be taken over at once.
    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError>;

    /// Takes an incarnation off the live set: it ended in good order, or its index is empty.
    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError>;

    /// A secret of this store, made at first use and the same for every replica: the key under
    /// which callers are hashed.
    async fn caller_key(&self) -> Result<[u8; 32], StoreError>;

    /// Follows what is committed from now on.
    fn changes(&self) -> Changes;

    /// As last looked at; does not wait.
    fn health(&self) -> Health {
        Health::Good
    }
}
