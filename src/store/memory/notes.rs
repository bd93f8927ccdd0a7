//! Notes of the store that forgets everything at exit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use bytes::Bytes;

use super::Memory;
use crate::store::StoreError;
use crate::store::notes::{ENTRIES_MAX, Name, Notes};

/// Far above what the limits on calls allow in practice; a last bound, not a budget.
const BYTES_MAX: usize = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct State {
    values: HashMap<Name, (u64, Content)>,
    expiry: BTreeSet<(u64, Name)>,
    bytes: usize,
}

#[derive(Debug)]
enum Content {
    Value(Bytes),
    Log(BTreeMap<u64, Bytes>),
}

impl Content {
    fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.len(),
            Self::Log(entries) => entries.values().map(Bytes::len).sum(),
        }
    }
}

impl State {
    fn sweep(&mut self, now_ms: u64) {
        while let Some(&(expires_ms, name)) = self.expiry.first()
            && expires_ms <= now_ms
        {
            self.take(name);
        }
    }

    fn take(&mut self, name: Name) -> Option<Content> {
        let (expires_ms, content) = self.values.remove(&name)?;
        self.expiry.remove(&(expires_ms, name));
        self.bytes -= content.bytes();
        Some(content)
    }

    fn set(&mut self, name: Name, content: Content, expires_ms: u64) -> Result<(), StoreError> {
        let before = self.values.get(&name).map_or(0, |(_, old)| old.bytes());
        let bytes = content.bytes();
        if self.bytes - before + bytes > BYTES_MAX {
            return Err(StoreError::Full);
        }
        self.take(name);
        self.bytes += bytes;
        self.expiry.insert((expires_ms, name));
        self.values.insert(name, (expires_ms, content));
        Ok(())
    }

    fn value(&self, name: Name) -> Option<Bytes> {
        match self.values.get(&name) {
            Some((_, Content::Value(value))) => Some(value.clone()),
            Some((_, Content::Log(_))) | None => None,
        }
    }
}

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
        notes.set(name, Content::Value(value), expires_ms)?;
        Ok(None)
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        self.notes().set(name, Content::Value(value), expires_ms)
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
        let mut notes = self.notes();
        let mut entries = match notes.values.get(&log) {
            Some((_, Content::Log(entries))) => entries.clone(),
            Some((_, Content::Value(_))) | None => BTreeMap::new(),
        };
        entries.insert(number, entry);
        while entries.len() as u64 > ENTRIES_MAX {
            entries.pop_first();
        }
        notes.set(log, Content::Log(entries), expires_ms)
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
        let mut notes = self
            .notes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        notes.sweep(self.clock.now_ms());
        notes
    }
}
