//! A store whose commands are timed for the metrics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::error::StoreError;
use super::kv::{KvStore, Name};
use super::{Beat, Changes, Commit, ListPlace, Store, StoreHealth, Stored, Write};
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use crate::telemetry::metrics::METRICS;

/// Times each command of a store, and changes nothing.
#[derive(Debug)]
pub struct Observed(pub Arc<dyn Store>);

/// Times one command. A command that is dropped before it resolves is not counted.
async fn timed<T>(
    operation: &str,
    command: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let began = Instant::now();
    let answer = command.await;
    let outcome = match &answer {
        Ok(_) => "ok",
        Err(StoreError::Full) => "full",
        Err(StoreError::Unavailable(_)) => "unavailable",
        Err(StoreError::Corrupt(_) | StoreError::Newer | StoreError::UnknownKey) => "unreadable",
    };
    let seconds = (Instant::now() - began).as_secs_f64();
    let durations = &METRICS.store.operations;
    durations
        .with_label_values(&[operation, outcome])
        .observe(seconds);
    answer
}

#[async_trait]
impl Store for Observed {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        let operation = if write.expected.is_none() {
            "create"
        } else {
            "commit"
        };
        timed(operation, self.0.commit(write)).await
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        timed("load", self.0.load(id)).await
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        timed("load_request", self.0.load_request(id)).await
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let putting = self.0.put_result(id, fence, result, expires_ms);
        timed("put_result", putting).await
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        timed("load_result", self.0.load_result(id, fence)).await
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        timed("indexed", self.0.indexed(incarnation)).await
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        timed("due", self.0.due(now_ms, limit)).await
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        timed("list", self.0.listed(caller, after, limit)).await
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        timed("forget", self.0.forget(id, incarnation)).await
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        timed("beat", self.0.beat(incarnation, lease)).await
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        timed("retire", self.0.retire(incarnation)).await
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        self.0.caller_key().await
    }

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        timed("tell", self.0.tell(id)).await
    }

    fn changes(&self) -> Changes {
        self.0.changes()
    }

    fn health(&self) -> StoreHealth {
        self.0.health()
    }
}

#[async_trait]
impl KvStore for Observed {
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        timed("kv_claim", self.0.claim(name, value, expires_ms)).await
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        timed("kv_put", self.0.put(name, value, expires_ms)).await
    }

    async fn replace(
        &self,
        name: Name,
        stands: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let replacing = self.0.replace(name, stands, value, expires_ms);
        timed("kv_replace", replacing).await
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        timed("kv_find", self.0.find(name)).await
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        timed("kv_remove", self.0.remove(name)).await
    }

    async fn append(
        &self,
        log: Name,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let appending = self.0.append(log, number, entry, expires_ms);
        timed("log_append", appending).await
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        timed("log_trim", self.0.trim(log, first)).await
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        timed("log_read", self.0.entries(log, after)).await
    }
}
