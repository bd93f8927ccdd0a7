//! The store in one file beside the sidecar: durable without a server, for one process at a time.
//!
//! One thread writes: it commits all waiting writes in one transaction with one fsync, and answers
//! them when they are on disk. Reads see the last commit and do not wait for the writer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redb::backends::InMemoryBackend;
use redb::{Database, StorageError};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::error::StoreError;
use super::leases::Leases;
use super::random::random_bytes;
use super::{
    Beat, ChangeEvent, Changes, Commit, Ended, LOG_LENGTH, ListPlace, Store, Stored, Write,
    in_order,
};
use crate::base::caught::{Panicked, caught};
use crate::base::clock::Clock;
use crate::base::io_reason::with_causes;
use crate::base::lock::Mutex;
use crate::task::history::HistoryPlace;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use file::{DatabaseFile, PidFile};
use handle::{DatabaseHandle, unavailable};
use jobs::{JobAnswer, QueuedJob, WriteJob};
use tables::TableEdit;
use writer::DatabaseWriter;

pub use file::{EmbeddedOpenError, FileState};
pub use key::{callers_key, seal_key, shared_key};

mod answers;
mod ended;
mod file;
mod file_state;
mod handle;
mod jobs;
mod key;
mod kv;
mod kv_tables;
mod lazy_table;
mod merge;
mod pieces;
mod read;
mod records;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

/// The most sweeps of one beat. What expires between two beats is removed even if it came as fast as the store takes
/// tasks; and a beat ends soon, because it renews a lease.
const SWEEPS_MAX: usize = 16;

/// Returns the result of work with a store file. redb panics where a page of the file is not as it wrote it.
fn undamaged<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, EmbeddedOpenError>,
) -> Result<T, EmbeddedOpenError> {
    caught(work).unwrap_or_else(|Panicked| Err(EmbeddedOpenError::Damaged(path.into())))
}

/// The embedded store.
///
/// A drop, like [`Embedded::close`], finishes the pending writes and closes the file. A drop blocks its
/// thread for that long (one commit).
#[derive(Debug)]
pub struct Embedded {
    clock: Arc<dyn Clock>,
    database: Arc<DatabaseHandle>,
    jobs: Mutex<Option<mpsc::Sender<QueuedJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    leases: Mutex<Leases>,
    caller_key: [u8; 32],
    /// New followers subscribe through this receiver. The writer holds the sender, so that followers see
    /// the end of the store.
    changes: broadcast::Receiver<ChangeEvent>,
}

impl Embedded {
    /// Opens or creates the file (mode 0600, missing directories 0700). Call this before serving, because
    /// it blocks while redb repairs the file after a crash.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, EmbeddedOpenError> {
        undamaged(path, || Self::open_file(path, clock))
    }

    fn open_file(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, EmbeddedOpenError> {
        let pid_file = PidFile::new(path);
        let file = DatabaseFile::new(path);
        let mut database = file.open().map_err(|error| pid_file.explain(error))?;
        // Only after the open, because the lock on the file shows that no other process has it.
        pid_file.write_pid();
        if pid_file.file_bytes() >= file::LARGE {
            let compacted = tables::compact(&mut database, clock.now_ms());
            compacted.map_err(|error| EmbeddedOpenError::unreadable(path, error))?;
        }
        Self::start(database, clock, path, move || file.open(), Some(pid_file))
    }

    /// Opens one of several files that share a caller key, and moves into it what the other files hold whose
    /// processes have ended.
    pub fn open_one_of(
        path: &Path,
        others: &[PathBuf],
        caller_key: &[u8; 32],
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EmbeddedOpenError> {
        undamaged(path, || {
            Self::open_and_merge(path, others, caller_key, clock)
        })
    }

    fn open_and_merge(
        path: &Path,
        others: &[PathBuf],
        caller_key: &[u8; 32],
        clock: Arc<dyn Clock>,
    ) -> Result<Self, EmbeddedOpenError> {
        let pid_file = PidFile::new(path);
        let file = DatabaseFile::new(path);
        let database = file.open().map_err(|error| pid_file.explain(error))?;
        pid_file.write_pid();
        // A new file would get a random caller key from `start`.
        tables::prepare(&database, caller_key)
            .map_err(|error| EmbeddedOpenError::unreadable(path, error))?;
        for other in others.iter().filter(|other| other.exists()) {
            let merged = undamaged(other, || {
                let merged = merge::merge(&database, other, caller_key);
                merged.map_err(|error| EmbeddedOpenError::unreadable(other, error))
            });
            // A file that cannot be read must not keep this process from starting.
            if let Err(error) = merged {
                tracing::warn!(file = %other.display(), error = %with_causes(&error), "the tasks of an earlier process cannot be read");
            }
        }
        Self::start(database, clock, path, move || file.open(), Some(pid_file))
    }

    /// A store without a file and without fsync, for property tests, which would wait for the disk.
    /// Under a paused tokio clock its writes time out, because they wait for a thread: tests with a paused
    /// clock use the memory store.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Result<Self, EmbeddedOpenError> {
        let path = Path::new("(memory)");
        let database = redb::Builder::new()
            .create_with_backend(InMemoryBackend::new())
            .map_err(|error| EmbeddedOpenError::unreadable(path, error))?;
        // Without a file there is nothing to open again.
        let lost = || Err(StorageError::PreviousIo.into());
        Self::start(database, clock, path, lost, None)
    }

    fn start(
        database: Database,
        clock: Arc<dyn Clock>,
        path: &Path,
        reopen: impl FnMut() -> Result<Database, redb::DatabaseError> + Send + 'static,
        pid_file: Option<PidFile>,
    ) -> Result<Self, EmbeddedOpenError> {
        let key = random_bytes().map_err(|error| EmbeddedOpenError::unreadable(path, error))?;
        let caller_key = tables::prepare(&database, &key)
            .map_err(|error| EmbeddedOpenError::unreadable(path, error))?
            .ok_or_else(|| EmbeddedOpenError::Format(path.into()))?;
        // Only one process can hold the file, so every incarnation that it names has ended.
        let earlier: BTreeSet<Incarnation> = read::incarnations(&database)
            .map_err(|error| EmbeddedOpenError::unreadable(path, error))?;
        let database = Arc::new(DatabaseHandle::new(database));
        let (jobs, receiver) = mpsc::channel(QUEUE);
        let (sender, changes) = broadcast::channel(LOG_LENGTH);
        let writer = DatabaseWriter {
            database: Arc::clone(&database),
            clock: Arc::clone(&clock),
            changes: sender,
            reopen: Box::new(reopen),
            pid_file,
            reclaimable: 0,
        };
        let thread = std::thread::Builder::new()
            .name("raincheck-store".into())
            .spawn(move || writer.run(receiver))
            .map_err(|error| EmbeddedOpenError::unreadable(path, error))?;
        Ok(Self {
            clock,
            database,
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some(thread)),
            leases: Mutex::new(Leases::with_earlier(earlier)),
            caller_key,
            changes,
        })
    }

    /// Finishes the pending writes and closes the file. Later calls return `Unavailable`. Dropped before it
    /// resolves, the close goes on by itself.
    pub async fn close(&self) {
        if let Some(thread) = self.end() {
            // If the thread panicked, the panic hook has reported it.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    fn end(&self) -> Option<JoinHandle<()>> {
        // Without a sender the writer ends. The handle is taken, too, so that only one caller joins the thread.
        self.jobs.lock().take();
        self.thread.lock().take()
    }

    /// Hands a job to the writer thread and waits for its answer.
    async fn write<T>(&self, job: impl FnOnce(JobAnswer<T>) -> WriteJob) -> Result<T, StoreError> {
        // A clone, because no lock may be held while the queue is full. The writer ends only after such writes.
        let sender = self.jobs.lock().clone();
        let sender = sender.ok_or_else(|| unavailable("the store was closed"))?;
        let (answer, answered) = oneshot::channel();
        let queued = QueuedJob {
            job: job(answer),
            caller: Handle::current(),
        };
        let work = async {
            let sent = sender.send(queued).await;
            sent.map_err(|_| unavailable("the store has stopped"))?;
            answered
                .await
                .map_err(|_| unavailable("the store has stopped"))?
        };
        match tokio::time::timeout(WRITE_TIMEOUT, work).await {
            Ok(written) => written,
            // The job stays in the queue and may still be written, so the write is in doubt and not refused.
            Err(_) => Err(unavailable("the disk did not answer in time")),
        }
    }

    async fn edit(&self, edit: TableEdit) -> Result<(), StoreError> {
        self.write(|answer| WriteJob::TableEdit { edit, answer })
            .await
    }

    /// Reads on a blocking thread, so that a large value does not hold up the executor.
    async fn read_blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = Arc::clone(&self.database);
        let reading = tokio::task::spawn_blocking(move || database.read_when_back(read));
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

/// Jobs that wait for the current commit; further jobs wait for a place in the queue.
const QUEUE: usize = 1024;

/// The time that a write waits for the disk before it is in doubt.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

#[async_trait]
impl Store for Embedded {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        // The job owns its write, because it outlives a caller that goes away.
        let write = Box::new(write.clone());
        self.write(|answer| WriteJob::Commit { write, answer })
            .await
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        let now_ms = self.clock.now_ms();
        // A record is small and read at once. A wait for the database, up to two seconds, must not block the executor.
        if self.database.is_away() {
            let read = move |database: &Database| read::record(database, id, now_ms);
            return self.read_blocking(read).await;
        }
        self.database
            .read(|database| read::record(database, id, now_ms))
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        let now_ms = self.clock.now_ms();
        self.read_blocking(move |database| read::request(database, id, now_ms))
            .await
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        self.edit(TableEdit::PutResult {
            id,
            fence,
            result,
            expires_ms,
        })
        .await
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        let now_ms = self.clock.now_ms();
        self.read_blocking(move |database| read::result(database, id, fence, now_ms))
            .await
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        let incarnation = incarnation.clone();
        self.read_blocking(move |database| read::indexed(database, &incarnation))
            .await
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        self.read_blocking(move |database| read::due(database, now_ms, limit))
            .await
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        let (caller, now_ms) = (*caller, self.clock.now_ms());
        // The table is in the order of ids, so that all of the caller's tasks are read.
        let all = self.read_blocking(move |database| read::listed(database, &caller, now_ms));
        Ok(in_order(all.await?, after, limit))
    }

    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        let after = after.first().copied();
        self.read_blocking(move |database| ended::read(database, after))
            .await
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        self.edit(TableEdit::Forget {
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
        // The block ends the lock before the first await.
        let beat = {
            let mut leases = self.leases.lock();
            if let Some(incarnation) = incarnation {
                leases.renew(incarnation, now_ms, lease);
            }
            leases.beat(now_ms)
        };
        // The read comes first, so that an idle store does not write once a second. If the file cannot be
        // read, the sweep makes the writer open it again.
        for _ in 0..SWEEPS_MAX {
            let expired = self
                .database
                .read(|database| read::anything_expired(database, now_ms));
            if !expired.unwrap_or(true) {
                break;
            }
            self.edit(TableEdit::Sweep { now_ms }).await?;
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

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        self.write(|answer| WriteJob::Tell { id, answer }).await
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.resubscribe())
    }
}
