//! Notes of the store that forgets everything at exit.

use async_trait::async_trait;
use bytes::Bytes;

use super::Memory;
use super::kept::{Content, State};
use crate::store::error::StoreError;
use crate::store::notes::{Name, Notes};

#[async_trait]
impl Notes for Memory {
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let mut notes = self.notes();
        if let Some(stands) = notes.value(name) {
            return Ok((stands != value).then_some(stands));
        }
        notes.put(name, value, expires_ms)?;
        Ok(None)
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        self.notes().put(name, value, expires_ms)
    }

    async fn replace(
        &self,
        name: Name,
        stands: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut notes = self.notes();
        let now = notes.value(name);
        if now.is_none_or(|now| now != stands && now != value) {
            return Ok(false);
        }
        notes.put(name, value, expires_ms)?;
        Ok(true)
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        Ok(self.notes().value(name))
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        self.notes().take(name);
        Ok(())
    }

    async fn append(
        &self,
        log: Name,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        self.notes().append(log, number, entry, expires_ms)
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        self.notes().trim(log, first);
        Ok(())
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let notes = self.notes();
        let Some((_, Content::Log(entries))) = notes.values.get(&log) else {
            return Ok(Vec::new());
        };
        let behind = entries.range(after.saturating_add(1)..);
        Ok(behind
            .map(|(number, entry)| (*number, entry.clone()))
            .collect())
    }
}

impl Memory {
    /// The notes with everything expired taken out.
    fn notes(&self) -> std::sync::MutexGuard<'_, State> {
        let mut notes = self.notes.lock();
        notes.sweep(self.clock.now_ms());
        notes
    }
}
