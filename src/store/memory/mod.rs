//! The store that forgets everything at exit, for trials and for tests.
//!
//! Plain maps, not redb's in-memory backend: a create takes 3 µs here and 55 to 190 µs there, and these writes need no
//! thread, so that tests with a paused clock can use them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::broadcast;

use super::compare_and_set::next_revision;
use super::error::StoreError;
use super::leases::Leases;
use super::random::random_bytes;
use super::{
    Beat, ChangeEvent, ChangedTask, Changes, Commit, ENDED_LENGTH, Ended, HistoryEntry, LOG_LENGTH,
    ListPlace, Store, Stored, Version, Write, in_order,
};
use crate::base::clock::Clock;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::history::HistoryPlace;
use crate::task::id::{Caller, Fence, Incarnation, Revision, TaskId};
use kv_state::KvState;

mod kv;
mod kv_state;

/// Maps behind a lock that is never held across an await.
///
/// Bounded in bytes: at the limit a write that grows returns [`StoreError::Full`] until something has expired.
#[derive(Debug)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    limit: usize,
    state: Mutex<MemoryState>,
    kv: Mutex<KvState>,
    changes: broadcast::Sender<ChangeEvent>,
    caller_key: Mutex<Option<[u8; 32]>>,
}

impl Memory {
    /// Holds at most [`DEFAULT_LIMIT`] bytes of records, requests and results.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_limit(clock, DEFAULT_LIMIT)
    }

    pub fn with_limit(clock: Arc<dyn Clock>, limit: usize) -> Self {
        let (changes, _) = broadcast::channel(LOG_LENGTH);
        Self {
            clock,
            limit,
            state: Mutex::default(),
            kv: Mutex::default(),
            changes,
            caller_key: Mutex::default(),
        }
    }

    /// The state after a sweep of what has expired.
    fn current(&self) -> MutexGuard<'_, MemoryState> {
        let mut state = self.state.lock();
        state.sweep(self.clock.now_ms());
        state
    }

    fn publish(&self, id: TaskId, revision: Revision) {
        let change = ChangedTask { id, revision };
        // The send fails only if there is no follower, and then the change is not needed.
        let _ = self.changes.send(ChangeEvent::Changed(change));
    }
}

/// A last bound, far above what the limits on calls and results allow in practice.
pub const DEFAULT_LIMIT: usize = 4 << 30;

#[async_trait]
impl Store for Memory {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        let now_ms = self.clock.now_ms();
        let mut state = self.current();
        let revision = match state.next_revision(write) {
            Ok(revision) => revision,
            Err(commit) => return Ok(commit),
        };
        let freed = state
            .records
            .get(&write.id)
            .map_or(0, |entry| entry.stored.record.len());
        let added = write.record.len() + write.request.as_ref().map_or(0, Bytes::len);
        // A full store takes the ends of tasks, because cancel and expiry must work there. The port demands this.
        if !write.ends && added > freed && state.bytes - freed + added > self.limit {
            return Err(StoreError::Full);
        }
        state.apply(write, revision);
        // Published under the lock, so that followers see the commits in their order.
        if write.expected.is_some() {
            self.publish(write.id, revision);
        }
        state.sweep(now_ms);
        Ok(Commit::Done(revision))
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        Ok(self
            .current()
            .records
            .get(&id)
            .map(|entry| entry.stored.clone()))
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        Ok(self
            .current()
            .records
            .get(&id)
            .and_then(|entry| entry.request.clone()))
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let mut state = self.current();
        let freed = state
            .results
            .get(&(id, fence))
            .map_or(0, |(_, old)| old.len());
        if state.bytes - freed + result.len() > self.limit {
            return Err(StoreError::Full);
        }
        // An earlier sending of the same result may have left a row under another expiry.
        state.remove_result(id, fence);
        state.bytes += result.len();
        state.expiry.insert((expires_ms, id, Some(fence)));
        state.results.insert((id, fence), (expires_ms, result));
        Ok(())
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        Ok(self
            .current()
            .results
            .get(&(id, fence))
            .map(|(_, result)| result.clone()))
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        let state = self.current();
        Ok(state
            .index
            .get(incarnation)
            .into_iter()
            .flatten()
            .copied()
            .collect())
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        let state = self.current();
        let overdue = state.due.iter().take_while(|(due_ms, _)| *due_ms <= now_ms);
        Ok(overdue.take(limit).map(|(_, id)| *id).collect())
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        let state = self.current();
        let ids = state.lists.get(caller).into_iter().flatten();
        let listed = ids.filter_map(|id| Some((state.records.get(id)?.expires_ms, *id)));
        Ok(in_order(listed.collect(), after, limit))
    }

    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        let after = after.first().map_or(0, |place| place.at.0);
        let state = self.current();
        let ended = state
            .ended
            .iter()
            .filter(|(ended, _)| ended.place.at.0 > after);
        Ok(ended.map(|(ended, _)| ended.clone()).collect())
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        let mut state = self.current();
        let entry = state.records.get_mut(&id);
        if let Some(due_ms) = entry.and_then(|entry| entry.due_ms.take()) {
            state.due.remove(&(due_ms, id));
        }
        if let Some(incarnation) = incarnation {
            state.unindex(incarnation, id);
        }
        Ok(())
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        let now_ms = self.clock.now_ms();
        let mut state = self.current();
        if let Some(incarnation) = incarnation {
            state.leases.renew(incarnation, now_ms, lease);
        }
        Ok(state.leases.beat(now_ms))
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        self.current().leases.retire(incarnation);
        Ok(())
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        // The lock is held while the key is drawn, so that all callers get the same one.
        let mut slot = self.caller_key.lock();
        if let Some(key) = *slot {
            return Ok(key);
        }
        Ok(*slot.insert(random_bytes()?))
    }

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        self.publish(id, Revision(0));
        Ok(())
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.subscribe())
    }
}

#[derive(Debug, Default)]
struct MemoryState {
    records: PrehashedMap<TaskId, MemoryRecord>,
    results: BTreeMap<(TaskId, Fence), (u64, Bytes)>,
    index: BTreeMap<Incarnation, BTreeSet<TaskId>>,
    due: BTreeSet<(u64, TaskId)>,
    lists: PrehashedMap<Caller, BTreeSet<TaskId>>,
    /// Records (without a fence) and results, sorted by expiry.
    expiry: BTreeSet<(u64, TaskId, Option<Fence>)>,
    leases: Leases,
    /// The last entries of the history, the oldest first, with their expiry.
    ended: VecDeque<(Ended, u64)>,
    /// The number of the last one. Numbers never come again.
    ended_last: u64,
    /// The bytes of all records, requests and results.
    bytes: usize,
}

#[derive(Debug)]
struct MemoryRecord {
    stored: Stored,
    request: Option<Bytes>,
    /// Whose list names the task.
    listed: Option<Caller>,
    expires_ms: u64,
    due_ms: Option<u64>,
}

impl MemoryRecord {
    fn bytes(&self) -> usize {
        self.stored.record.len() + self.request.as_ref().map_or(0, Bytes::len)
    }
}

impl MemoryState {
    /// The revision that this write creates, or its outcome if it changes nothing.
    fn next_revision(&self, write: &Write) -> Result<Revision, Commit> {
        let found = self.records.get(&write.id).map(|entry| &entry.stored);
        next_revision(found.map(|stored| stored.version), write)
            .map_err(|unchanged| unchanged.into_commit(found.cloned()))
    }

    fn apply(&mut self, write: &Write, revision: Revision) {
        // The old record is taken out whole, so that nothing of its bytes, times and rows is counted twice.
        let (request, listed) = match self.remove_record(write.id) {
            Some(old) => (old.request.or_else(|| write.request.clone()), old.listed),
            None => (write.request.clone(), write.listed),
        };
        if let Some(due_ms) = write.due_ms {
            self.due.insert((due_ms, write.id));
        }
        if let Some(incarnation) = &write.drop_from {
            self.unindex(incarnation, write.id);
        }
        if let Some(incarnation) = &write.keep_for {
            self.index
                .entry(incarnation.clone())
                .or_default()
                .insert(write.id);
        }
        let entry = MemoryRecord {
            stored: stored(write, revision),
            request,
            listed,
            expires_ms: write.expires_ms,
            due_ms: write.due_ms,
        };
        if let Some(list) = listed {
            self.lists.entry(list).or_default().insert(write.id);
        }
        if let Some(HistoryEntry { entry, expires_ms }) = &write.history {
            self.ended_last += 1;
            if self.ended.len() == ENDED_LENGTH {
                self.ended.pop_front();
            }
            let place = HistoryPlace {
                bucket: 0,
                at: (self.ended_last, 0),
            };
            let (id, entry) = (write.id, entry.clone());
            self.ended
                .push_back((Ended { place, id, entry }, *expires_ms));
        }
        self.bytes += entry.bytes();
        self.expiry.insert((write.expires_ms, write.id, None));
        self.records.insert(write.id, entry);
    }

    /// Removes what has expired. Expiry is exact, as the port demands, and the cost depends only on the number of
    /// expired rows.
    fn sweep(&mut self, now_ms: u64) {
        // All entries are kept for the same time, save for a reload in between.
        while self
            .ended
            .front()
            .is_some_and(|(_, expires_ms)| *expires_ms <= now_ms)
        {
            self.ended.pop_front();
        }
        while let Some(&(expires_ms, id, fence)) = self.expiry.first() {
            if expires_ms > now_ms {
                break;
            }
            if let Some(fence) = fence {
                self.remove_result(id, fence);
                continue;
            }
            if let Some(list) = self.remove_record(id).and_then(|entry| entry.listed) {
                self.unlist(&list, id);
            }
            // A record does not tell which index names it. There are few indexes: one for each live replica.
            self.index.retain(|_, ids| {
                ids.remove(&id);
                !ids.is_empty()
            });
        }
    }

    fn remove_record(&mut self, id: TaskId) -> Option<MemoryRecord> {
        let entry = self.records.remove(&id)?;
        self.bytes -= entry.bytes();
        self.expiry.remove(&(entry.expires_ms, id, None));
        if let Some(due_ms) = entry.due_ms {
            self.due.remove(&(due_ms, id));
        }
        Some(entry)
    }

    fn remove_result(&mut self, id: TaskId, fence: Fence) {
        if let Some((expires_ms, result)) = self.results.remove(&(id, fence)) {
            self.bytes -= result.len();
            self.expiry.remove(&(expires_ms, id, Some(fence)));
        }
    }

    fn unlist(&mut self, caller: &Caller, id: TaskId) {
        if let Some(ids) = self.lists.get_mut(caller) {
            ids.remove(&id);
            if ids.is_empty() {
                self.lists.remove(caller);
            }
        }
    }

    fn unindex(&mut self, incarnation: &Incarnation, id: TaskId) {
        if let Some(ids) = self.index.get_mut(incarnation) {
            ids.remove(&id);
            if ids.is_empty() {
                self.index.remove(incarnation);
            }
        }
    }
}

fn stored(write: &Write, revision: Revision) -> Stored {
    let Write {
        nonce,
        caller,
        record,
        ..
    } = write;
    Stored {
        version: Version {
            revision,
            nonce: *nonce,
        },
        caller: *caller,
        record: record.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Manual;
    use crate::store::Nonce;

    #[tokio::test]
    async fn it_is_bounded_and_room_comes_back() {
        let clock = Arc::new(Manual::at(1));
        let as_clock: Arc<dyn Clock> = Arc::<Manual>::clone(&clock);
        let store = Memory::with_limit(as_clock, 100);
        let (first, second) = (create(60, 10), create(60, 20));
        store.commit(&first).await.unwrap();
        assert!(matches!(store.commit(&second).await, Err(StoreError::Full)));
        let result = Bytes::from(vec![0; 41]);
        let full = store.put_result(first.id, Fence(1), result, 10).await;
        assert!(matches!(full, Err(StoreError::Full)));
        clock.set(10);
        store.commit(&second).await.unwrap();
        clock.set(20);
        store.beat(None, Duration::ZERO).await.unwrap();
        let state = store.current();
        assert_eq!(state.bytes, 0);
        assert!(state.records.is_empty() && state.expiry.is_empty() && state.due.is_empty());
        assert!(state.index.is_empty() && state.lists.is_empty());
    }

    fn create(bytes: usize, expires_ms: u64) -> Write {
        Write {
            id: TaskId::random(),
            expected: None,
            nonce: Nonce(7),
            caller: Caller::from_bytes([1; 16]),
            record: Bytes::from(vec![0; bytes]),
            expires_ms,
            due_ms: Some(5),
            drop_from: None,
            keep_for: Some(Incarnation::new("a")),
            request: None,
            history: None,
            durable: false,
            ends: false,
            listed: Some(Caller::from_bytes([1; 16])),
        }
    }
}
