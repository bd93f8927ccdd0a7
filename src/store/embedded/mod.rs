//! The store in one file beside the sidecar: durable without a server, for one process at a time.
//!
//! Writes go through one thread that commits whatever has gathered in one transaction and one
//! fsync; reads see what was last committed and do not wait for it. An answered write is on disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redb::backends::InMemoryBackend;
use redb::{Database, StorageError};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::error::StoreError;
use super::leases::Leases;
use super::{Beat, Changes, Commit, LOG_LENGTH, Seen, Store, Stored, Write};
use crate::clock::Clock;
use crate::lock::Mutex;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use file::{Claim, File};
use slot::{Slot, unavailable};
use tables::Edit;
use writer::{Order, Writer};

pub use file::{Look, OpenError};
pub use key::{callers_key, seal_key, shared_key};

mod file;
mod gather;
mod key;
mod look;
mod notes;
mod pieces;
mod read;
mod rows;
mod shelf;
mod slot;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

/// The embedded store.
///
/// Dropping it, like [`Embedded::close`], writes what was handed over, waits for it and lets go of
/// the file; a drop blocks its thread for that long (one commit).
#[derive(Debug)]
pub struct Embedded {
    clock: Arc<dyn Clock>,
    slot: Arc<Slot>,
    orders: Mutex<Option<mpsc::Sender<Order>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    leases: Mutex<Leases>,
    caller_key: [u8; 32],
    /// Only for new followers to start from: the writer holds the sending end, so that they see
    /// the end of the store.
    changes: broadcast::Receiver<Seen>,
}

impl Embedded {
    /// Opens the file, or makes it (0600, missing directories 0700). Blocks for the repair after a
    /// crash: call it before serving.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let claim = Claim::new(path);
        let file = File::new(path);
        let mut database = file.open().map_err(|error| claim.explain(error))?;
        claim.sign();
        if claim.file_bytes() >= file::LARGE {
            let tidied = tables::tidy(&mut database, clock.now_ms());
            tidied.map_err(|error| OpenError::unreadable(path, error))?;
        }
        Self::start(database, clock, path, move || file.open(), Some(claim))
    }

    /// The same for one of several files, which have the caller key in common. What the others hold, whose
    /// processes have ended, is here from now on.
    pub fn open_one_of(
        path: &Path,
        others: &[PathBuf],
        caller_key: &[u8; 32],
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let claim = Claim::new(path);
        let file = File::new(path);
        let database = file.open().map_err(|error| claim.explain(error))?;
        claim.sign();
        tables::prepare(&database, caller_key)
            .map_err(|error| OpenError::unreadable(path, error))?;
        for other in others.iter().filter(|other| other.exists()) {
            if let Err(error) = gather::gather(&database, other, caller_key) {
                tracing::warn!(file = %other.display(), %error, "the tasks of an earlier process cannot be read");
            }
        }
        Self::start(database, clock, path, move || file.open(), Some(claim))
    }

    /// Without a file and without fsync: for property tests, which would wait for the disk. Writes
    /// wait for a thread, so under a paused tokio clock they time out: use the memory store there.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = Path::new("(memory)");
        let database = redb::Builder::new()
            .create_with_backend(InMemoryBackend::new())
            .map_err(|error| OpenError::unreadable(path, error))?;
        // There is nothing to come back to.
        let lost = || Err(StorageError::PreviousIo.into());
        Self::start(database, clock, path, lost, None)
    }

    fn start(
        database: Database,
        clock: Arc<dyn Clock>,
        path: &Path,
        reopen: impl FnMut() -> Result<Database, redb::DatabaseError> + Send + 'static,
        claim: Option<Claim>,
    ) -> Result<Self, OpenError> {
        let key = super::judge::random_key().map_err(|error| OpenError::unreadable(path, error))?;
        let caller_key = tables::prepare(&database, &key)
            .map_err(|error| OpenError::unreadable(path, error))?
            .ok_or_else(|| OpenError::Format(path.into()))?;
        // Only one process can hold the file: whoever is named in it has ended.
        let earlier: BTreeSet<Incarnation> =
            read::incarnations(&database).map_err(|error| OpenError::unreadable(path, error))?;
        let slot = Arc::new(Slot::new(database));
        let (orders, receiver) = mpsc::channel(QUEUE);
        let (sender, changes) = broadcast::channel(LOG_LENGTH);
        let writer = Writer {
            slot: Arc::clone(&slot),
            clock: Arc::clone(&clock),
            changes: sender,
            reopen: Box::new(reopen),
            claim,
            idle: 0,
        };
        let thread = std::thread::Builder::new()
            .name("raincheck-store".into())
            .spawn(move || writer.run(receiver))
            .map_err(|error| OpenError::unreadable(path, error))?;
        Ok(Self {
            clock,
            slot,
            orders: Mutex::new(Some(orders)),
            thread: Mutex::new(Some(thread)),
            leases: Mutex::new(Leases::with_earlier(earlier)),
            caller_key,
            changes,
        })
    }

    /// Writes what was handed over and lets go of the file; whatever is asked later is answered
    /// `Unavailable`. Dropped before it resolves, it goes on by itself.
    pub async fn close(&self) {
        if let Some(thread) = self.end() {
            // The thread's own panic was reported by the panic hook; there is nothing to add.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    fn end(&self) -> Option<JoinHandle<()>> {
        self.orders.lock().take();
        self.thread.lock().take()
    }

    async fn order<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Order,
    ) -> Result<T, StoreError> {
        let sender = self.orders.lock().clone();
        let sender = sender.ok_or_else(|| unavailable("the store was closed"))?;
        let (answer, answered) = oneshot::channel();
        let work = async {
            let sent = sender.send(make(answer)).await;
            sent.map_err(|_| unavailable("the store has stopped"))?;
            answered
                .await
                .map_err(|_| unavailable("the store has stopped"))?
        };
        match tokio::time::timeout(WRITE_TIMEOUT, work).await {
            Ok(settled) => settled,
            Err(_) => Err(unavailable("the disk did not answer in time")),
        }
    }

    async fn edit(&self, edit: Edit) -> Result<(), StoreError> {
        self.order(|answer| Order::Edit { edit, answer }).await
    }

    /// Reads what may be large where it does not hold up the executor.
    async fn read_aside<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let slot = Arc::clone(&self.slot);
        let reading = tokio::task::spawn_blocking(move || slot.read_when_back(read));
        reading
            .await
            .map_err(|error| StoreError::Unavailable(error.into()))?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(thread) = self.end() {
            let _ = thread.join();
        }
    }
}

/// Writes that wait for the commit under way; more wait for a place.
const QUEUE: usize = 1024;

/// How long a write waits for the disk before it is in doubt.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

#[async_trait]
impl Store for Embedded {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        let write = Box::new(write.clone());
        self.order(|answer| Order::Commit { write, answer }).await
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        let now_ms = self.clock.now_ms();
        if self.slot.is_away() {
            let read = move |database: &Database| read::record(database, id, now_ms);
            return self.read_aside(read).await;
        }
        self.slot
            .read(|database| read::record(database, id, now_ms))
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        let now_ms = self.clock.now_ms();
        self.read_aside(move |database| read::request(database, id, now_ms))
            .await
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        self.edit(Edit::PutResult {
            id,
            fence,
            result,
            expires_ms,
        })
        .await
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        let now_ms = self.clock.now_ms();
        self.read_aside(move |database| read::result(database, id, fence, now_ms))
            .await
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        let incarnation = incarnation.clone();
        self.read_aside(move |database| read::indexed(database, &incarnation))
            .await
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        self.read_aside(move |database| read::due(database, now_ms, limit))
            .await
    }

    async fn listed(&self, caller: &Caller) -> Result<Vec<(u64, TaskId)>, StoreError> {
        let (caller, now_ms) = (*caller, self.clock.now_ms());
        self.read_aside(move |database| read::listed(database, &caller, now_ms))
            .await
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        self.edit(Edit::Forget {
            id,
            incarnation: incarnation.cloned(),
        })
        .await
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        let now_ms = self.clock.now_ms();
        let beat = {
            let mut leases = self.leases.lock();
            if let Some(incarnation) = incarnation {
                leases.renew(incarnation, now_ms, lease);
            }
            leases.beat(now_ms)
        };
        // Asked first, so that an idle store does not write once a second. A file that cannot be
        // read is the writer's to open anew: the heartbeat is what makes it try.
        let expired = self
            .slot
            .read(|database| read::anything_expired(database, now_ms));
        if expired.unwrap_or(true) {
            self.edit(Edit::Sweep { now_ms }).await?;
        }
        Ok(beat)
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        self.leases.lock().retire(incarnation);
        Ok(())
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        Ok(self.caller_key)
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.resubscribe())
    }
}
