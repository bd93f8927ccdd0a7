//! Tasks over a store: load, decide, commit if unchanged, decide again on conflict.
//!
//! This is the one place where the machine's rules and the store's revisions meet. Each call waits for
//! a store that is away as long as its patience lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::error::StoreError;
use super::history::History;
pub use super::loaded::Loaded;
use super::lost_ends::LostEnds;
use super::outbox::Outbox;
use super::patience::{StorePatience, patiently};
use super::quota::{Allowance, OverQuota, Quotas};
use super::{Changes, Commit, Nonce, Store, Stored, Version, Write, record};
use crate::base::clock::Clock;
use crate::base::failpoint::{Point, hit};
use crate::task::id::{Caller, Fence, TaskId};
use crate::task::machine::{Effect, Rejected, TaskEvent, step};
use crate::task::state::{Outcome, Payload, Task};
use crate::telemetry;

/// Results up to this size are part of the record. Larger results have an entry of their own, so that
/// no poll of a working task carries them.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// The size of an error that a full store still accepts. Raincheck's own errors are shorter.
const SHORT_ERROR: usize = 1024;

/// The tasks of one store.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    patience: StorePatience,
    nonces: Arc<Nonces>,
    quotas: Arc<Quotas>,
    lost_ends: Arc<LostEnds>,
    outbox: Outbox,
    history: Option<Arc<History>>,
}

/// Unique nonces: a random half for this process and a counter. They need to be unique and not secret,
/// so drawing one asks the operating system for nothing.
#[derive(Debug)]
struct Nonces {
    process: u64,
    count: AtomicU64,
}

impl Nonces {
    fn next(&self) -> Nonce {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        Nonce(u128::from(self.process) << 64 | u128::from(count))
    }

    /// Returns `true` if this process drew the nonce.
    fn has_drawn(&self, nonce: Nonce) -> bool {
        nonce.0 >> 64 == u128::from(self.process)
    }
}

/// Why an event was not applied.
#[derive(Debug)]
pub enum ApplyError {
    /// The machine refused the event. Holds the task in its current state.
    Rejected(Rejected, Box<Loaded>),
    /// The store no longer has the task.
    Gone,
    /// The store gave no answer in time, so the event is in doubt.
    Store(StoreError),
}

/// Why there is no record of a new task.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Another task has this id; nothing changed.
    #[error("the task id is taken")]
    Taken,
    /// The caller has as many tasks, or as many bytes of them, as it may have; nothing was written.
    #[error("the caller has as many tasks as it may")]
    Quota,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<StoreError> for ApplyError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Ledger {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, patience: StorePatience) -> Self {
        let (process, _) = uuid::Uuid::new_v4().as_u64_pair();
        let count = AtomicU64::new(0);
        Self {
            store,
            clock,
            patience,
            nonces: Arc::new(Nonces { process, count }),
            quotas: Arc::new(Quotas::new(Allowance::ANY, Allowance::ANY)),
            lost_ends: Arc::default(),
            outbox: Outbox::default(),
            history: None,
        }
    }

    /// Limits how many tasks callers may have.
    #[must_use]
    pub fn within(self, quotas: Quotas) -> Self {
        Self {
            quotas: Arc::new(quotas),
            ..self
        }
    }

    /// Hands the tasks whose receivers must be notified over to the receivers' jobs.
    #[must_use]
    pub fn telling(self, outbox: Outbox) -> Self {
        Self { outbox, ..self }
    }

    /// Adds the tasks that end to the history.
    #[must_use]
    pub fn recording(self, history: Option<Arc<History>>) -> Self {
        Self { history, ..self }
    }

    /// The history of this store, if one is kept.
    pub fn history(&self) -> Option<&Arc<History>> {
        self.history.as_ref()
    }

    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Changes how many tasks callers may have. Tasks beyond that stay.
    pub fn change_quotas(&self, of_caller: Allowance, in_all: Allowance) {
        self.quotas.change(of_caller, in_all);
    }

    /// The same tasks, for a component that tries again by itself: it waits for a store that is away no longer
    /// than this.
    #[must_use]
    pub fn waiting(&self, patience: Duration) -> Self {
        Self {
            patience: StorePatience {
                read: patience,
                create: patience,
            },
            ..self.clone()
        }
    }

    /// Returns `true` if the caller may have one more task.
    pub fn has_room(&self, caller: &Caller) -> bool {
        self.quotas.has_room(caller, self.now_ms())
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub fn changes(&self) -> Changes {
        self.store.changes()
    }

    /// Stores a new task. Once this returns `Ok`, every replica finds the task.
    ///
    /// After [`CreateError::Store`] the task is in doubt, and the caller must
    /// [end it](TaskEvent::Abandoned) when the store is back.
    pub async fn create(&self, task: Task, request: Option<Bytes>) -> Result<Loaded, CreateError> {
        let mut write = self.write_of(&task, None, None)?;
        write.request = request;
        // The end of a call may come with its record.
        let history = self.history.as_ref();
        write.history = history.and_then(|history| history.entry(&task));
        let bytes = write.record.len() + write.request.as_ref().map_or(0, Bytes::len);
        let (caller, expires_ms) = (task.caller, write.expires_ms);
        // Counted before the write, so that creates at the same time cannot exceed the quota together.
        let entered = self.quotas.enter(caller, bytes, expires_ms, self.now_ms());
        // A call with a log has been sent. It asked for room before that.
        if entered.is_err() && task.log.is_none() {
            return Err(CreateError::Quota);
        }
        let counts = entered.is_ok();
        hit(Point::CreateBefore);
        let committed = self.commit_patiently(&write, self.patience.create).await;
        if counts && !matches!(committed, Ok(Commit::Done(_))) {
            // A create in doubt counts no more, although it may stand. The runner settles it when the store is back.
            let now_ms = self.now_ms();
            self.quotas.leave(&caller, bytes, expires_ms, now_ms);
        }
        match committed? {
            Commit::Done(revision) => {
                hit(Point::CreateAfter);
                if let Some(history) = history.filter(|_| write.history.is_some()) {
                    history.added(&task);
                }
                telemetry::tasks::committed(None, &task);
                telemetry::waiting::committed(&task, revision, self.now_ms());
                let version = Version {
                    revision,
                    nonce: write.nonce,
                };
                let created = Loaded {
                    task,
                    version,
                    read_only: false,
                };
                self.outbox.committed(None, &created);
                Ok(created)
            }
            // A repeated create is `Done` by its nonce, so this record belongs to another task.
            Commit::Conflict(_) => Err(CreateError::Taken),
            Commit::Gone => {
                Err(StoreError::Corrupt("a create that found nothing to change").into())
            }
        }
    }

    /// The task, or `None` if it is unknown or its `ttlMs` has passed.
    pub async fn load(&self, id: TaskId) -> Result<Option<Loaded>, StoreError> {
        let until = Instant::now() + self.patience.read;
        let stored = patiently(until, || self.store.load(id)).await?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let loaded = self.decode(&stored)?;
        // The store keeps a record longer than its `ttlMs`, because clocks differ. Clients see the exact end.
        Ok((!loaded.task.is_expired(self.now_ms())).then_some(loaded))
    }

    /// The request that was stored with the task.
    pub async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        let until = Instant::now() + self.patience.read;
        patiently(until, || self.store.load_request(id)).await
    }

    /// The result that the record only names, or `None` if the record holds the whole outcome.
    pub async fn load_kept(&self, task: &Task) -> Result<Option<Bytes>, StoreError> {
        let Some(Outcome::Completed(Payload::Kept { fence, .. })) = task.outcome else {
            return Ok(None);
        };
        let until = Instant::now() + self.patience.read;
        let kept = patiently(until, || self.store.load_result(task.id, fence)).await?;
        // The result is written before the commit that names it, so it is there as long as the record is.
        kept.map(Some)
            .ok_or(StoreError::Corrupt("a task whose result is missing"))
    }

    /// Counts a result that is too large for the record, before it is [kept](Self::keep): once for each result.
    pub fn reserve(&self, task: &Task, bytes: usize) -> Result<(), OverQuota> {
        let (expires_ms, now_ms) = (task.expires_ms(), self.now_ms());
        self.quotas.reserve(&task.caller, bytes, expires_ms, now_ms)
    }

    /// Writes a result that is too large for the record, before the commit that names it. Sent once, because a store may
    /// refuse it for its size.
    pub async fn keep(&self, task: &Task, fence: Fence, result: Bytes) -> Result<(), StoreError> {
        let expires_ms = task.expires_ms();
        hit(Point::ResultBefore);
        let put = self.store.put_result(task.id, fence, result, expires_ms);
        put.await.inspect(|()| hit(Point::ResultAfter))
    }

    /// Returns `true` if the store takes a write without content beside this task: it refuses a write that fails
    /// at the same time for what is in it.
    pub async fn takes_small_writes(&self, id: TaskId) -> bool {
        // No owner has this fence, so a write that arrives late replaces no result.
        let (no_owners, expires_ms) = (Fence(0), self.now_ms() + 1000);
        // Repeated, because the write before may have cost the connection.
        let until = Instant::now() + self.patience.create;
        let put = patiently(until, || {
            self.store
                .put_result(id, no_owners, Bytes::new(), expires_ms)
        });
        put.await.is_ok()
    }

    /// Applies the event to the loaded task. If another write came first, the machine decides again on the
    /// changed task.
    pub async fn apply(
        &self,
        loaded: &Loaded,
        event: TaskEvent,
    ) -> Result<(Loaded, Option<Effect>), ApplyError> {
        self.apply_with(loaded, event, None).await
    }

    /// Applies the event as [`Self::apply`] does, and keeps the request with the task, unless the store has one.
    pub async fn apply_with(
        &self,
        loaded: &Loaded,
        event: TaskEvent,
        request: Option<Bytes>,
    ) -> Result<(Loaded, Option<Effect>), ApplyError> {
        let mut latest: Option<Box<Loaded>> = None;
        loop {
            // The machine decides anew on the record that came first. No bound is needed: after each conflict another
            // write is done.
            let current = latest.as_deref().unwrap_or(loaded);
            let tried = self.try_apply_with(current, event.clone(), request.clone());
            match tried.await? {
                Tried::Done(done, effect) => return Ok((*done, effect)),
                Tried::Conflict(changed) => latest = Some(changed),
            }
        }
    }

    /// Applies the event unless another write came first. For events that the other write may have made needless.
    pub async fn try_apply(&self, loaded: &Loaded, event: TaskEvent) -> Result<Tried, ApplyError> {
        self.try_apply_with(loaded, event, None).await
    }

    async fn try_apply_with(
        &self,
        loaded: &Loaded,
        event: TaskEvent,
        request: Option<Bytes>,
    ) -> Result<Tried, ApplyError> {
        // A commit by this version would drop the fields that only the newer version has.
        if loaded.read_only {
            return Err(ApplyError::Store(StoreError::Newer));
        }
        let answers = matches!(event, TaskEvent::Answered { .. });
        let decided = match step(&loaded.task, event, self.now_ms()) {
            Ok(decided) => decided,
            Err(why) => return Err(ApplyError::Rejected(why, Box::new(loaded.clone()))),
        };
        let mut write = self.write_of(&decided.task, Some(&loaded.task), Some(loaded.version))?;
        // A client relies on an answer that was accepted, so a failover must not lose it.
        write.durable |= answers;
        write.request = request;
        let ends_now = decided.task.is_ended() && !loaded.task.is_ended();
        let history = self.history.as_ref().filter(|_| ends_now);
        write.history = history.and_then(|history| history.entry(&decided.task));
        let committed = self.commit_patiently(&write, self.patience.read).await;
        if committed.is_err() {
            // The end may stand in the store. A later read of the record then reports it.
            self.lost_ends.remember(&loaded.task, &decided.task);
        }
        match committed? {
            Commit::Done(revision) => {
                telemetry::tasks::committed(Some(&loaded.task), &decided.task);
                telemetry::waiting::committed(&decided.task, revision, self.now_ms());
                if let Some(history) = history.filter(|_| write.history.is_some()) {
                    history.added(&decided.task);
                }
                if ends_now {
                    // An earlier commit of this end may have got no answer. The end is reported once.
                    self.lost_ends.forget(decided.task.id);
                }
                let ended = ends_now.then_some(&write.record);
                let kept: usize = ended
                    .into_iter()
                    .chain(&write.request)
                    .map(Bytes::len)
                    .sum();
                if kept > 0 && decided.task.log.is_none() {
                    let caller = &decided.task.caller;
                    self.quotas
                        .grow(caller, kept, write.expires_ms, self.now_ms());
                }
                let version = Version {
                    revision,
                    nonce: write.nonce,
                };
                let done = Loaded {
                    task: decided.task,
                    version,
                    read_only: false,
                };
                self.outbox.committed(Some(&loaded.task), &done);
                Ok(Tried::Done(Box::new(done), decided.effect))
            }
            Commit::Conflict(stored) => Ok(Tried::Conflict(Box::new(self.decode(&stored)?))),
            Commit::Gone => Err(ApplyError::Gone),
        }
    }

    fn write_of(
        &self,
        task: &Task,
        before: Option<&Task>,
        expected: Option<Version>,
    ) -> Result<Write, StoreError> {
        let keep_for = task.indexed_for().cloned();
        let was_for = before.and_then(Task::indexed_for);
        Ok(Write {
            id: task.id,
            expected,
            nonce: self.nonces.next(),
            caller: task.caller,
            record: record::encode(task)?,
            expires_ms: task.expires_ms(),
            due_ms: task.look_ms(),
            drop_from: was_for
                .filter(|was| keep_for.as_ref() != Some(was))
                .cloned(),
            keep_for,
            request: None,
            history: None,
            // A client relies on these: that the task exists, that an answer arrived, how the task ended.
            durable: task.log.is_none()
                && before.is_none_or(|before| task.is_ended() && !before.is_ended()),
            ends: before.is_some_and(|before| ends(task, before)),
            listed: task.listed_for(),
        })
    }

    fn decode(&self, stored: &Stored) -> Result<Loaded, StoreError> {
        let record::Decoded { task, newer } = record::decode(&stored.record)?;
        // No other process draws such a nonce, so the record is as a commit of this process left it.
        let is_ours = self.nonces.has_drawn(stored.version.nonce);
        self.lost_ends.found(&task, is_ours);
        Ok(Loaded {
            task,
            version: stored.version,
            read_only: newer,
        })
    }

    /// Repeats the write until the store answers. That is safe, because the nonce makes it the same write.
    async fn commit_patiently(
        &self,
        write: &Write,
        patience: Duration,
    ) -> Result<Commit, StoreError> {
        patiently(Instant::now() + patience, || self.store.commit(write)).await
    }
}

/// Returns `true` if a full store must accept this change: a cancel, an end with a short reason, or a change after
/// the end. Otherwise neither cancel nor expiry would work in a full store. Results wait for room.
fn ends(task: &Task, before: &Task) -> bool {
    before.is_ended()
        || match &task.outcome {
            Some(Outcome::Cancelled) => true,
            Some(Outcome::Failed(error)) => error.get().len() <= SHORT_ERROR,
            // The answer is in the log.
            Some(Outcome::Completed(_)) => task.log.is_some(),
            None => false,
        }
}

/// The outcome of [`Ledger::try_apply`].
#[derive(Debug)]
pub enum Tried {
    Done(Box<Loaded>, Option<Effect>),
    Conflict(Box<Loaded>),
}
