//! A store that is given sealed values only, so that a reader of the store learns nothing of a call but its ids, its times
//! and its sizes.
//!
//! This is the one layer between the users of a store and the store: records, requests, results, values and the entries of
//! logs are sealed on their way in and opened on their way out. No store knows of it.
//!
//! A process that can write to the store could leave the seal out. So a replica that seals refuses values in the
//! clear, unless an operator is turning the seal on: then replicas that seal and replicas that do not share the
//! store, and read both.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::hmac;
use bytes::Bytes;

use super::error::StoreError;
use super::kept_keys::{copy, forget_clear_caller_key, kept_keys};
use super::kv::{Kind, KvStore, Name};
use super::seal::{Binding, Sealer};
pub use super::sealed_value::Clear;
use super::sealed_value::{is_sealed, of_value, open, seal};
use super::{
    Beat, Changes, Commit, Ended, HistoryEntry, ListPlace, Store, StoreHealth, Stored, Write,
};
use crate::task::history::HistoryPlace;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};

/// Seals and opens the values of one store.
pub struct Sealed {
    store: Arc<dyn Store>,
    /// `None`: sealed values cannot be opened here.
    sealer: Option<Sealer>,
    /// `None`: new values are not sealed.
    sealing: Option<Sealing>,
}

struct Sealing {
    /// The key of digests that can be guessed.
    digests: hmac::Key,
    callers: [u8; 32],
    clear: Clear,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sealed").field(&self.store).finish()
    }
}

impl Sealed {
    /// Opens what is sealed, if there is a key, and seals nothing.
    pub fn reading(store: Arc<dyn Store>, sealer: Option<Sealer>) -> Self {
        Self {
            store,
            sealer,
            sealing: None,
        }
    }

    /// Seals everything. All replicas of a service get the same keys for digests and callers from the store, where they
    /// are kept sealed: they stay the same when the seal key changes.
    pub async fn sealing(
        store: Arc<dyn Store>,
        sealer: Sealer,
        clear: Clear,
        now_ms: u64,
    ) -> Result<Self, StoreError> {
        let keys = kept_keys(&*store, &sealer, clear, now_ms).await?;
        if clear == Clear::Refused {
            forget_clear_caller_key(&*store).await?;
        }
        Ok(Self {
            store,
            sealer: Some(sealer),
            sealing: Some(Sealing {
                digests: hmac::Key::new(hmac::HMAC_SHA256, &keys.digests),
                callers: keys.callers,
                clear,
            }),
        })
    }

    fn seal(&self, binding: &Binding<'_>, value: Bytes) -> Result<Bytes, StoreError> {
        match &self.sealer {
            Some(sealer) if self.sealing.is_some() => seal(sealer, binding, &value),
            Some(_) | None => Ok(value),
        }
    }

    /// The fingerprint of the seal key is not sealed: replicas with another key must be able to read it.
    fn seal_value(&self, name: &Name, value: Bytes) -> Result<Bytes, StoreError> {
        if name.kind == Kind::SealKey {
            return Ok(value);
        }
        self.seal(&of_value(name), value)
    }

    fn open(&self, binding: &Binding<'_>, value: Bytes) -> Result<Bytes, StoreError> {
        let clear = self.sealing.as_ref().map_or(Clear::Read, |it| it.clear);
        open(self.sealer.as_ref(), clear, binding, value)
    }

    fn open_value(&self, name: &Name, value: Bytes) -> Result<Bytes, StoreError> {
        if name.kind == Kind::SealKey {
            return Ok(value);
        }
        self.open(&of_value(name), value)
    }

    fn open_record(&self, id: TaskId, stored: Stored) -> Result<Stored, StoreError> {
        let record = self.open(&of_record(&id, &stored.caller), stored.record)?;
        Ok(Stored { record, ..stored })
    }

    /// The value of this name as it was before it was sealed. `None`: the sealer cannot open it, or it is refused.
    pub fn opened(
        sealer: Option<&Sealer>,
        clear: Clear,
        name: &Name,
        value: Bytes,
    ) -> Option<Bytes> {
        open(sealer, clear, &of_value(name), value).ok()
    }

    /// The name in the store. The digest of a call's arguments could be guessed, so it is hashed with a key.
    fn name(&self, name: Name) -> Name {
        match (&self.sealing, name.kind) {
            (Some(sealing), Kind::IdenticalCall | Kind::GivenUp) => {
                let mut digest = [0; 16];
                let tag = hmac::sign(&sealing.digests, &name.digest);
                for (to, from) in digest.iter_mut().zip(tag.as_ref()) {
                    *to = *from;
                }
                Name { digest, ..name }
            }
            (Some(_) | None, _) => name,
        }
    }
}

#[async_trait]
impl Store for Sealed {
    async fn commit(&self, write: &Write) -> Result<Commit, StoreError> {
        let id = write.id;
        // Without a seal the write goes on as it is, without a copy.
        let committed = if self.sealing.is_some() {
            let request = write.request.clone();
            let request = request.map(|request| self.seal(&of_request(&id), request));
            let record = self.seal(&of_record(&id, &write.caller), write.record.clone())?;
            let history = write.history.as_ref().map(|history| {
                let entry = self.seal(&of_history(&id), history.entry.clone())?;
                Ok::<_, StoreError>(HistoryEntry { entry, ..*history })
            });
            let sealed = Write {
                record,
                history: history.transpose()?,
                request: request.transpose()?,
                ..write.clone()
            };
            self.store.commit(&sealed).await?
        } else {
            self.store.commit(write).await?
        };
        Ok(match committed {
            Commit::Conflict(stored) => Commit::Conflict(self.open_record(id, stored)?),
            committed @ (Commit::Done(_) | Commit::Gone) => committed,
        })
    }

    async fn load(&self, id: TaskId) -> Result<Option<Stored>, StoreError> {
        let stored = self.store.load(id).await?;
        stored
            .map(|stored| self.open_record(id, stored))
            .transpose()
    }

    async fn load_request(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        let request = self.store.load_request(id).await?;
        request
            .map(|request| self.open(&of_request(&id), request))
            .transpose()
    }

    async fn put_result(
        &self,
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let result = self.seal(&of_result(&id, fence), result)?;
        self.store.put_result(id, fence, result, expires_ms).await
    }

    async fn load_result(&self, id: TaskId, fence: Fence) -> Result<Option<Bytes>, StoreError> {
        let result = self.store.load_result(id, fence).await?;
        result
            .map(|result| self.open(&of_result(&id, fence), result))
            .transpose()
    }

    async fn indexed(&self, incarnation: &Incarnation) -> Result<Vec<TaskId>, StoreError> {
        self.store.indexed(incarnation).await
    }

    async fn due(&self, now_ms: u64, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        self.store.due(now_ms, limit).await
    }

    async fn listed(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        self.store.listed(caller, after, limit).await
    }

    async fn ended(&self, after: &[HistoryPlace]) -> Result<Vec<Ended>, StoreError> {
        let mut ended = self.store.ended(after).await?;
        let refuses_clear =
            matches!(&self.sealing, Some(sealing) if sealing.clear == Clear::Refused);
        ended.retain_mut(|ended| {
            // Entries outlive the tasks of the time before the seal. They are no sign that somebody wrote to the store.
            if refuses_clear && !is_sealed(&ended.entry) {
                return false;
            }
            match self.open(&of_history(&ended.id), ended.entry.clone()) {
                Ok(entry) => ended.entry = entry,
                // It stays as it is, which no reader takes for an entry: another replica may have the key.
                Err(StoreError::UnknownKey) => {}
                Err(_) => return false,
            }
            true
        });
        Ok(ended)
    }

    async fn forget(
        &self,
        id: TaskId,
        incarnation: Option<&Incarnation>,
    ) -> Result<(), StoreError> {
        self.store.forget(id, incarnation).await
    }

    async fn beat(
        &self,
        incarnation: Option<&Incarnation>,
        lease: Duration,
    ) -> Result<Beat, StoreError> {
        self.store.beat(incarnation, lease).await
    }

    async fn retire(&self, incarnation: &Incarnation) -> Result<(), StoreError> {
        self.store.retire(incarnation).await
    }

    /// With a seal the key is derived from the seal key, and never in the clear in the store.
    async fn caller_key(&self) -> Result<[u8; 32], StoreError> {
        if let Some(sealing) = &self.sealing {
            return Ok(sealing.callers);
        }
        // Replicas that seal may have made the key.
        let kept = match &self.sealer {
            Some(sealer) => copy(&*self.store, sealer).await?,
            None => None,
        };
        match kept.and_then(|kept| kept.callers) {
            Some(callers) => Ok(callers),
            None => self.store.caller_key().await,
        }
    }

    async fn forget_caller_key(&self) -> Result<(), StoreError> {
        self.store.forget_caller_key().await
    }

    async fn tell(&self, id: TaskId) -> Result<(), StoreError> {
        self.store.tell(id).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }

    fn health(&self) -> StoreHealth {
        self.store.health()
    }
}

#[async_trait]
impl KvStore for Sealed {
    /// The store compares sealed bytes, which differ each time. So a repeated claim is recognised here.
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let name = self.name(name);
        let sealed = self.seal_value(&name, value.clone())?;
        let found = self.store.claim(name, sealed, expires_ms).await?;
        let found = found
            .map(|found| self.open_value(&name, found))
            .transpose()?;
        Ok(found.filter(|found| *found != value))
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        let name = self.name(name);
        let value = self.seal_value(&name, value)?;
        self.store.put(name, value, expires_ms).await
    }

    /// The store compares sealed bytes, so the value is read first: it is replaced if it opens to what is expected and is
    /// still the same, byte for byte.
    async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        // The store can compare the bytes here. They differ if another replica sealed the value, which is opened and
        // compared below.
        if self.sealing.is_none() {
            let replacing = self
                .store
                .replace(name, expected.clone(), value.clone(), expires_ms);
            let replaced = replacing.await?;
            if replaced || self.sealer.is_none() {
                return Ok(replaced);
            }
        }
        let name = self.name(name);
        for _ in 0..REPLACES_MAX {
            let Some(found) = self.store.find(name).await? else {
                return Ok(false);
            };
            let opened = self.open_value(&name, found.clone())?;
            // An earlier sending of this call wrote the value.
            if opened == value {
                return Ok(true);
            }
            if opened != expected {
                return Ok(false);
            }
            let sealed = self.seal_value(&name, value.clone())?;
            if self.store.replace(name, found, sealed, expires_ms).await? {
                return Ok(true);
            }
            // Another write came in between. Nearly always it wrote another value, and the next read shows it.
        }
        Ok(false)
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        let name = self.name(name);
        let found = self.store.find(name).await?;
        found.map(|found| self.open_value(&name, found)).transpose()
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        self.store.remove(self.name(name)).await
    }

    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let entry = self.seal(&of_entry(&log, number), entry)?;
        let store = &self.store;
        store.append(log, fence, number, entry, expires_ms).await
    }

    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError> {
        // The store compares fences, so they stay in the clear.
        self.store.fence(log, fence, expires_ms).await
    }

    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        self.store.trim(log, first).await
    }

    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let entries = self.store.entries(log, after).await?;
        let opened = entries.into_iter().map(|(number, entry)| {
            let entry = self.open(&of_entry(&log, number), entry)?;
            Ok((number, entry))
        });
        opened.collect()
    }
}

fn of_record<'a>(id: &'a TaskId, caller: &'a Caller) -> Binding<'a> {
    Binding {
        kind: "record",
        id: id.as_bytes(),
        caller: caller.as_bytes(),
        number: 0,
    }
}

/// A request is bound to its task, and the task's record to the caller.
fn of_request(id: &TaskId) -> Binding<'_> {
    Binding {
        kind: "request",
        id: id.as_bytes(),
        caller: &[],
        number: 0,
    }
}

fn of_history(id: &TaskId) -> Binding<'_> {
    Binding {
        kind: "history entry",
        id: id.as_bytes(),
        caller: &[],
        number: 0,
    }
}

fn of_result(id: &TaskId, fence: Fence) -> Binding<'_> {
    Binding {
        kind: "result",
        id: id.as_bytes(),
        caller: &[],
        number: fence.0,
    }
}

fn of_entry(log: &Name, number: u64) -> Binding<'_> {
    Binding {
        number,
        ..of_value(log)
    }
}

/// The number of times that a value is replaced while it changes at the same time. Beyond that the caller reads the
/// value again.
const REPLACES_MAX: usize = 8;
