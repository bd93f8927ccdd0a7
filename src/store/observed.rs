//! A store whose commands are timed for the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tracing::{info, warn};

use super::error::StoreError;
use super::kv::{KvStore, Name};
use super::{Beat, Changes, Commit, Ended, ListPlace, Store, StoreHealth, Stored, Write};
use crate::task::history::HistoryPlace;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use crate::telemetry::metrics::METRICS;

/// A write of so many bytes shows that a store that was full has room again.
pub const ROOM_BYTES: usize = 64 * 1024;

/// Times each command of a store, and changes nothing.
#[derive(Debug)]
pub struct Observed {
    store: Arc<dyn Store>,
    /// The last write that needs room was refused for want of it.
    is_full: AtomicBool,
}

impl Observed {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            is_full: AtomicBool::new(false),
        }
    }

    /// Times a write that needs room. `bytes`: how much it writes. A small value finds room in a full store.
    async fn growing<T>(
        &self,
        operation: &str,
        bytes: usize,
        command: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = timed(operation, command).await;
        match &answer {
            Err(StoreError::Full) => {
                // Many writes are refused at once, and the swap lets one of them write the line.
                if !self.is_full.swap(true, Ordering::Relaxed) {
                    warn!("the store is full: no new task is made until there is room");
                }
            }
            Ok(_) if bytes >= ROOM_BYTES && self.is_full.load(Ordering::Relaxed) => {
                self.is_full.store(false, Ordering::Relaxed);
                info!("the store has room again");
            }
            Ok(_) | Err(_) => {}
        }
        answer
    }
}

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
        let committing = self.store.commit(write);
        if write.expected.is_none() {
            self.growing(operation, write.record.len(), committing)
                .await
        } else {
            timed(operation, committing).await
        }
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        timed("load", self.store.load(id)).await
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        timed("load_request", self.store.load_request(id)).await
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let bytes = result.len();
        let putting = self.store.put_result(id, fence, result, expires_ms);
        self.growing("put_result", bytes, putting).await
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        timed("load_result", self.store.load_result(id, fence)).await
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        timed("indexed", self.store.indexed(incarnation)).await
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        timed("due", self.store.due(now_ms, limit)).await
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        timed("list", self.store.listed(caller, after, limit)).await
    }

    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        timed("ended", self.store.ended(after)).await
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        timed("forget", self.store.forget(id, incarnation)).await
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        timed("beat", self.store.beat(incarnation, lease)).await
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        timed("retire", self.store.retire(incarnation)).await
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        self.store.caller_key().await
    }

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        timed("tell", self.store.tell(id)).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }

    fn health(&self) -> StoreHealth {
        if self.is_full.load(Ordering::Relaxed) {
            StoreHealth::Full
        } else {
            self.store.health()
        }
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
        let bytes = value.len();
        self.growing("kv_claim", bytes, self.store.claim(name, value, expires_ms))
            .await
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        let bytes = value.len();
        self.growing("kv_put", bytes, self.store.put(name, value, expires_ms))
            .await
    }

    async fn replace(
        &self,
        name: Name,
        stands: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let replacing = self.store.replace(name, stands, value, expires_ms);
        timed("kv_replace", replacing).await
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        timed("kv_find", self.store.find(name)).await
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        timed("kv_remove", self.store.remove(name)).await
    }

    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let bytes = entry.len();
        let appending = self.store.append(log, fence, number, entry, expires_ms);
        self.growing("log_append", bytes, appending).await
    }

    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError> {
        timed("log_fence", self.store.fence(log, fence, expires_ms)).await
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        timed("log_trim", self.store.trim(log, first)).await
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        timed("log_read", self.store.entries(log, after)).await
    }
}
