//! The store of a process whose real store is not there yet: every command fails, as in an outage.

use async_trait::async_trait;
use bytes::Bytes;
use std::time::Duration;
use tokio::sync::broadcast;

use super::error::StoreError;
use super::kv::{KvStore, Name};
use super::{Beat, Changes, Commit, Ended, ListPlace, Store, Stored, Write};
use crate::task::history::HistoryPlace;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};

/// A store that was not reached yet. It holds nothing and keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct Absent;

#[derive(Debug, thiserror::Error)]
#[error("it was not reached since the start")]
struct NotReached;

fn away<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable(Box::new(NotReached)))
}

#[async_trait]
impl Store for Absent {
    async fn commit(&self, _: &Write) -> Result<Commit, StoreError> {
        away()
    }

    async fn load(&self, _: TaskId) -> Result<Option<Stored>, StoreError> {
        away()
    }

    async fn load_request(&self, _: TaskId) -> Result<Option<Bytes>, StoreError> {
        away()
    }

    async fn put_result(&self, _: TaskId, _: Fence, _: Bytes, _: u64) -> Result<(), StoreError> {
        away()
    }

    async fn load_result(&self, _: TaskId, _: Fence) -> Result<Option<Bytes>, StoreError> {
        away()
    }

    async fn indexed(&self, _: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        away()
    }

    async fn due(&self, _: u64, _: usize) -> Result<Vec<TaskId>, StoreError> {
        away()
    }

    async fn listed(
        &self,
        _: &Caller,
        _: Option<ListPlace>,
        _: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        away()
    }

    async fn ended(&self, _: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        away()
    }

    async fn forget(&self, _: TaskId, _: Option<&Incarnation>) -> Result<(), StoreError> {
        away()
    }

    async fn beat(&self, _: Option<&Incarnation>, _: Duration) -> Result<Beat, StoreError> {
        away()
    }

    async fn retire(&self, _: &Incarnation) -> Result<(), StoreError> {
        away()
    }

    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        away()
    }

    async fn tell(&self, _: TaskId) -> Result<(), StoreError> {
        away()
    }

    /// Nothing changes.
    fn changes(&self) -> Changes {
        // The channel has no sender, so each follower gets `Closed` at once and ends.
        Changes::new(broadcast::channel(1).1)
    }
}

#[async_trait]
impl KvStore for Absent {
    async fn claim(&self, _: Name, _: Bytes, _: u64) -> Result<Option<Bytes>, StoreError> {
        away()
    }

    async fn put(&self, _: Name, _: Bytes, _: u64) -> Result<(), StoreError> {
        away()
    }

    async fn replace(&self, _: Name, _: Bytes, _: Bytes, _: u64) -> Result<bool, StoreError> {
        away()
    }

    async fn find(&self, _: Name) -> Result<Option<Bytes>, StoreError> {
        away()
    }

    async fn remove(&self, _: Name) -> Result<(), StoreError> {
        away()
    }

    async fn append(
        &self,
        _: Name,
        _: Fence,
        _: u64,
        _: Bytes,
        _: u64,
    ) -> Result<bool, StoreError> {
        away()
    }

    async fn fence(&self, _: Name, _: Fence, _: u64) -> Result<(), StoreError> {
        away()
    }

    async fn trim(&self, _: Name, _: u64) -> Result<(), StoreError> {
        away()
    }

    async fn entries(&self, _: Name, _: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        away()
    }
}
