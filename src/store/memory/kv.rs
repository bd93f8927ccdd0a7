//! Values and logs in memory.

use async_trait::async_trait;
use bytes::Bytes;

use super::Memory;
use super::kv_state::{Content, KvState};
use crate::store::error::StoreError;
use crate::store::kv::{KvStore, Name};
use crate::task::id::{Fence, Revision};

#[async_trait]
impl KvStore for Memory {
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        // One lock covers the look and the write, so that of two claims one wins.
        let mut kv = self.kv();
        if let Some(current) = kv.value(name) {
            return Ok((current != value).then_some(current));
        }
        kv.put(name, value, expires_ms)?;
        Ok(None)
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        self.kv().put(name, value, expires_ms)
    }

    async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut kv = self.kv();
        let now = kv.value(name);
        // A value that stands already was written by an earlier sending of this call.
        if now.is_none_or(|now| now != expected && now != value) {
            return Ok(false);
        }
        kv.put(name, value, expires_ms)?;
        Ok(true)
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        Ok(self.kv().value(name))
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        self.kv().take(name);
        Ok(())
    }

    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut kv = self.kv();
        let is_taken = kv.append(log, fence, (number, entry), expires_ms)?;
        // Still under the lock: a reader that writes its mark and then reads the log misses no entry.
        if is_taken && kv.value(log.read_as()).is_some() {
            self.publish(log.told_as(), Revision(0));
        }
        Ok(is_taken)
    }

    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError> {
        self.kv().fence(log, fence, expires_ms);
        Ok(())
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        self.kv().trim(log, first);
        Ok(())
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let kv = self.kv();
        let Some((_, Content::Log(_, entries))) = kv.values.get(&log) else {
            return Ok(Vec::new());
        };
        let behind = entries.range(after.saturating_add(1)..);
        Ok(behind
            .map(|(number, entry)| (*number, entry.clone()))
            .collect())
    }
}

impl Memory {
    /// The values and logs, after a sweep of what has expired.
    fn kv(&self) -> std::sync::MutexGuard<'_, KvState> {
        let mut kv = self.kv.lock();
        kv.sweep(self.clock.now_ms());
        kv
    }
}
