//! The store as one replica reaches it, and the watch over what is committed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use raincheck::runner::call_log::entry::LogEntry;
use raincheck::runner::call_log::log::EventLog;
use raincheck::store::kv::{KvStore, Name};
use raincheck::store::record::{decode, encode};
use raincheck::store::{Beat, Changes, Commit, Ended, ListPlace, Store, StoreError, Stored, Write};
use raincheck::task::history::HistoryPlace;
use raincheck::task::id::{Caller, Fence, Incarnation, Revision, TaskId};
use raincheck::task::state::{Outcome, Task};

use crate::link::{End, Fate, Link};

/// A fault of the store that breaks ownership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A write that came too late replaces what stands.
    LastWriteWins,
    /// A claim leaves the fence as it was.
    SameFence,
    /// Now and then a commit that was acknowledged was never written.
    Forgets,
    /// A name that is taken is given once more.
    ClaimsTwice,
}

/// What was committed so far, and what was wrong with it.
#[derive(Debug, Default)]
pub(crate) struct CommitWatch {
    tasks: Mutex<HashMap<TaskId, Task>>,
    /// The logs of calls, as they are in the store.
    logs: Mutex<HashMap<Name, EventLog>>,
    /// Who appended to each log last, and under which fence.
    writers: Mutex<HashMap<Name, (Fence, Incarnation)>>,
    wrongs: Mutex<Vec<String>>,
    /// The tasks whose commits wait for their answers.
    under_way: Mutex<Vec<TaskId>>,
    /// The most that did so at the same time.
    most_under_way: AtomicUsize,
    /// The commits that came after another one.
    conflicts: AtomicUsize,
}

/// A commit under way.
struct UnderWay<'a>(&'a CommitWatch, TaskId);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way.lock().unwrap();
        let place = under_way.iter().position(|id| *id == self.1).unwrap();
        under_way.swap_remove(place);
    }
}

impl CommitWatch {
    fn begin(&self, id: TaskId) -> UnderWay<'_> {
        let mut under_way = self.under_way.lock().unwrap();
        under_way.push(id);
        self.most_under_way
            .fetch_max(under_way.len(), Ordering::Relaxed);
        UnderWay(self, id)
    }

    /// The most commits that were under way at the same time since the last look.
    pub(crate) fn most_under_way(&self) -> usize {
        self.most_under_way.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn under_way(&self) -> Vec<TaskId> {
        self.under_way.lock().unwrap().clone()
    }

    pub(crate) fn conflicts(&self) -> usize {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// The tasks that were committed, as they are now.
    pub(crate) fn all(&self) -> Vec<Task> {
        self.tasks.lock().unwrap().values().cloned().collect()
    }

    pub(crate) fn wrong(&self, what: String) {
        self.wrongs.lock().unwrap().push(what);
    }

    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.wrongs.lock().unwrap().clone()
    }

    /// Whether a record was committed.
    pub(crate) fn has_any(&self) -> bool {
        !self.tasks.lock().unwrap().is_empty()
    }

    pub(crate) fn last(&self, id: TaskId) -> Option<Task> {
        self.tasks.lock().unwrap().get(&id).cloned()
    }

    pub(crate) fn watch_log(&self, log: EventLog) {
        self.logs.lock().unwrap().insert(log.name(), log);
    }

    /// The entry of this number in a log that is watched.
    async fn stands(&self, name: Name, number: u64) -> Option<LogEntry> {
        let watched = self.logs.lock().unwrap().get(&name).cloned();
        let entries = watched?.behind(number - 1).await.unwrap();
        let stands = entries.into_iter().find(|(at, _)| *at == number);
        stands.map(|(_, entry)| entry)
    }

    /// Judges an entry that `by` wrote into the log of a call: each fence has one writer, later fences write after
    /// earlier ones, and an entry that stands stays as it is.
    fn appended(
        &self,
        (by, fence): (&Incarnation, Fence),
        (name, number): (Name, u64),
        before: Option<&LogEntry>,
        entry: &LogEntry,
    ) {
        let mut writers = self.writers.lock().unwrap();
        let last = writers.insert(name, (fence, by.clone()));
        drop(writers);
        if let Some((last, of)) = last
            && (fence < last || (fence == last && of != *by))
        {
            let (by, of) = (by.as_str(), of.as_str());
            let (fence, last) = (fence.0, last.0);
            self.wrong(format!(
                "{by} wrote a log under {fence} after {of} under {last}"
            ));
        }
        if let Some(was) = before
            && (was.kind(), was.json()) != (entry.kind(), entry.json())
        {
            let (was, is) = (was.json(), entry.json());
            self.wrong(format!("entry {number} of a log was {was} and is {is}"));
        }
    }

    /// Judges a commit that the store acknowledged to `by`.
    fn committed(&self, by: &Incarnation, task: &Task) {
        let before = self.tasks.lock().unwrap().insert(task.id, task.clone());
        let Some(before) = before else { return };
        let id = task.id;
        if task.fence < before.fence {
            self.wrong(format!("{id}: the fence fell"));
        }
        if let Some(ended) = &before.outcome {
            let same = task.outcome.as_ref().is_some_and(|now| alike(ended, now));
            if !same {
                self.wrong(format!("{id}: an end changed"));
            }
        }
        let changed_owner = task.owner != before.owner && task.owner.is_some();
        if changed_owner && task.fence == before.fence {
            self.wrong(format!("{id}: two owners of one fence"));
        }
        // Only the owner hears a result.
        let completes = matches!(task.outcome, Some(Outcome::Completed(_)));
        if completes && before.outcome.is_none() && before.owner.as_ref() != Some(by) {
            self.wrong(format!(
                "{id}: a result from a replica that is not the owner"
            ));
        }
    }
}

fn alike(one: &Outcome, other: &Outcome) -> bool {
    let json = |outcome: &Outcome| serde_json::to_string(outcome).unwrap();
    json(one) == json(other)
}

#[derive(Debug)]
pub(crate) struct LinkedStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) link: Arc<Link>,
    pub(crate) book: Arc<CommitWatch>,
    pub(crate) by: Incarnation,
    pub(crate) planted: Option<Planted>,
    pub(crate) commits: Mutex<u64>,
}

impl LinkedStore {
    async fn through<T>(
        &self,
        command: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let fate = self.link.way(End::Store).await;
        if fate == Fate::Lost {
            return Err(broken());
        }
        let answer = command.await;
        self.link.alive().await;
        if fate == Fate::AnswerLost {
            return Err(broken());
        }
        answer
    }

    /// The commit as a faulty store does it.
    async fn store(&self, write: &Write) -> Result<Commit, StoreError> {
        let mut write = write.clone();
        let task = decode(&write.record)?.task;
        match self.planted {
            None | Some(Planted::ClaimsTwice) => {}
            Some(Planted::SameFence) => {
                if let Some(before) = self.book.last(task.id)
                    && before.fence != task.fence
                {
                    let same = Task {
                        fence: before.fence,
                        ..task
                    };
                    write.record = encode(&same)?;
                }
            }
            Some(Planted::Forgets) => {
                let nth = {
                    let mut commits = self.commits.lock().unwrap();
                    *commits += 1;
                    *commits
                };
                if write.expected.is_some() && nth.is_multiple_of(7) {
                    self.book.committed(&self.by, &task);
                    return Ok(Commit::Done(Revision(nth)));
                }
            }
            Some(Planted::LastWriteWins) => {
                if let Commit::Conflict(stands) = self.inner.commit(&write).await? {
                    write.expected = Some(stands.version);
                }
            }
        }
        let task = decode(&write.record)?.task;
        let commit = self.inner.commit(&write).await?;
        match &commit {
            Commit::Done(_) => self.book.committed(&self.by, &task),
            Commit::Conflict(_) => {
                self.book.conflicts.fetch_add(1, Ordering::Relaxed);
            }
            Commit::Gone => {}
        }
        Ok(commit)
    }
}

fn broken() -> StoreError {
    StoreError::Unavailable("the link is broken".into())
}

#[async_trait]
impl Store for LinkedStore {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        let _under_way = self.book.begin(write.id);
        self.through(self.store(write)).await
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        self.through(self.inner.load(id)).await
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        self.through(self.inner.load_request(id)).await
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let put = self.inner.put_result(id, fence, result, expires_ms);
        self.through(put).await
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        self.through(self.inner.load_result(id, fence)).await
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        self.through(self.inner.indexed(incarnation)).await
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        self.through(self.inner.due(now_ms, limit)).await
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        self.through(self.inner.listed(caller, after, limit)).await
    }

    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        self.through(self.inner.ended(after)).await
    }

    async fn forget(&self, id: TaskId, from: Option<&Incarnation>) -> Result<(), StoreError> {
        self.through(self.inner.forget(id, from)).await
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        self.through(self.inner.beat(incarnation, lease)).await
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        self.through(self.inner.retire(incarnation)).await
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        self.inner.caller_key().await
    }

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        self.through(self.inner.tell(id)).await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}

#[async_trait]
impl KvStore for LinkedStore {
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let claiming = async {
            match self.planted {
                Some(Planted::ClaimsTwice) => {
                    self.inner.put(name, value, expires_ms).await?;
                    Ok(None)
                }
                _ => self.inner.claim(name, value, expires_ms).await,
            }
        };
        self.through(claiming).await
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        self.through(self.inner.put(name, value, expires_ms)).await
    }

    async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let replacing = async {
            match self.planted {
                Some(Planted::LastWriteWins) => {
                    self.inner.put(name, value, expires_ms).await?;
                    Ok(true)
                }
                _ => self.inner.replace(name, expected, value, expires_ms).await,
            }
        };
        self.through(replacing).await
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        self.through(self.inner.find(name)).await
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        self.through(self.inner.remove(name)).await
    }

    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let appending = async {
            let before = self.book.stands(log, number).await;
            let new = LogEntry::read(entry.clone()).unwrap();
            let appending = self.inner.append(log, fence, number, entry, expires_ms);
            let is_taken = appending.await?;
            if is_taken {
                let writer = (&self.by, fence);
                let place = (log, number);
                self.book.appended(writer, place, before.as_ref(), &new);
            }
            Ok(is_taken)
        };
        self.through(appending).await
    }

    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError> {
        let fencing = self.inner.fence(log, fence, expires_ms);
        self.through(fencing).await
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        self.through(self.inner.trim(log, first)).await
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        self.through(self.inner.entries(log, after)).await
    }
}
