//! Notes over a store that may be away: asked again for as long as the patience lasts.
//!
//! Asking again is safe: each call of the port is the same call when it is sent twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Store;
use super::error::StoreError;
use super::ledger::{Patience, patiently};
use super::notes::Name;
use crate::clock::Clock;

/// The notes of one store.
///
/// Lifetimes count from the call. Dropped before it resolves, or after
/// [`StoreError::Unavailable`], what would write is in doubt: it may still happen.
#[derive(Debug, Clone)]
pub struct Notebook {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    patience: Patience,
}

impl Notebook {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, patience: Patience) -> Self {
        Self {
            store,
            clock,
            patience,
        }
    }

    /// Writes a note where none stands; what stands there instead is returned. The value must be
    /// one that no other claim has: by it this claim is known again when it is sent twice.
    ///
    /// A claim comes before a call is accepted, so it waits as long as a create.
    pub async fn claim(
        &self,
        name: Name,
        value: Bytes,
        lifetime: Duration,
    ) -> Result<Option<Bytes>, StoreError> {
        let expires_ms = self.expires_ms(lifetime);
        patiently(Instant::now() + self.patience.create, || {
            self.store.claim(name, value.clone(), expires_ms)
        })
        .await
    }

    /// Writes a note, whatever stood there.
    pub async fn put(
        &self,
        name: Name,
        value: Bytes,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let expires_ms = self.expires_ms(lifetime);
        patiently(self.until(), || {
            self.store.put(name, value.clone(), expires_ms)
        })
        .await
    }

    /// Writes a note where that one stands: whoever read it and changes it undoes nobody's change.
    /// False where another stands, or none.
    pub async fn replace(
        &self,
        name: Name,
        stands: Bytes,
        value: Bytes,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        let expires_ms = self.expires_ms(lifetime);
        patiently(self.until(), || {
            self.store
                .replace(name, stands.clone(), value.clone(), expires_ms)
        })
        .await
    }

    pub async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        patiently(self.until(), || self.store.find(name)).await
    }

    /// Takes a note or a log away. None there is no error.
    pub async fn remove(&self, name: Name) -> Result<(), StoreError> {
        patiently(self.until(), || self.store.remove(name)).await
    }

    /// Writes an entry of a log, numbered from 1 by its one writer, and has all of it live on for
    /// this long.
    pub async fn append(
        &self,
        log: Name,
        number: u64,
        entry: Bytes,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let expires_ms = self.expires_ms(lifetime);
        patiently(self.until(), || {
            self.store.append(log, number, entry.clone(), expires_ms)
        })
        .await
    }

    /// The entries behind `after`, in order. Empty where there is no such log.
    pub async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        patiently(self.until(), || self.store.entries(log, after)).await
    }

    fn until(&self) -> Instant {
        Instant::now() + self.patience.read
    }

    fn expires_ms(&self, lifetime: Duration) -> u64 {
        let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        self.clock.now_ms().saturating_add(lifetime)
    }
}
