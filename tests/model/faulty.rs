//! A store between which and its user a write gets lost, or its answer.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use raincheck::store::kv::{KvStore, Name};
use raincheck::store::{Beat, Changes, Commit, Ended, ListPlace, Store, StoreError, Stored, Write};
use raincheck::task::history::HistoryPlace;
use raincheck::task::id::{Caller, Fence, Incarnation, TaskId};

use crate::reference::Fault;

#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) inner: Arc<dyn Store>,
    next: Mutex<Fault>,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            next: Mutex::new(Fault::None),
        })
    }

    /// What happens to the next commit.
    pub(crate) fn set(&self, fault: Fault) {
        *self.next.lock().unwrap() = fault;
    }
}

#[async_trait]
impl Store for Faulty {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        let fault = std::mem::replace(&mut *self.next.lock().unwrap(), Fault::None);
        match fault {
            Fault::None => return self.inner.commit(write).await,
            Fault::Before => {}
            Fault::After => drop(self.inner.commit(write).await?),
        }
        Err(StoreError::Unavailable("the link broke".into()))
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        self.inner.load(id).await
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        self.inner.load_request(id).await
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        self.inner.put_result(id, fence, result, expires_ms).await
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        self.inner.load_result(id, fence).await
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        self.inner.indexed(incarnation).await
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        self.inner.due(now_ms, limit).await
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        self.inner.listed(caller, after, limit).await
    }

    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        self.inner.ended(after).await
    }

    async fn forget(&self, id: TaskId, from: Option<&Incarnation>) -> Result<(), StoreError> {
        self.inner.forget(id, from).await
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        self.inner.beat(incarnation, lease).await
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        self.inner.retire(incarnation).await
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        self.inner.caller_key().await
    }

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        self.inner.tell(id).await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}

#[async_trait]
impl KvStore for Faulty {
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        self.inner.claim(name, value, expires_ms).await
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        self.inner.put(name, value, expires_ms).await
    }

    async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        self.inner.replace(name, expected, value, expires_ms).await
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        self.inner.find(name).await
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        self.inner.remove(name).await
    }

    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let inner = &self.inner;
        inner.append(log, fence, number, entry, expires_ms).await
    }

    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError> {
        self.inner.fence(log, fence, expires_ms).await
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        self.inner.trim(log, first).await
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        self.inner.entries(log, after).await
    }
}
