//! The key-value part of a store, for callers: repeats each call while the store is away.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Store;
use super::error::StoreError;
use super::kv::Name;
use super::patience::{StorePatience, patiently};
use crate::base::clock::Clock;

/// The values and logs of one store. Each call is repeated for a while if the store is away.
///
/// Lifetimes count from the call. A write that was dropped before it resolved, or that returned
/// [`StoreError::Unavailable`], is in doubt: it may still happen.
#[derive(Debug, Clone)]
pub struct KeyValue {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    patience: StorePatience,
}

impl KeyValue {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, patience: StorePatience) -> Self {
        Self {
            store,
            clock,
            patience,
        }
    }

    /// The same values, for reads that a create waits for.
    #[must_use]
    pub fn for_creates(&self) -> Self {
        let create = self.patience.create;
        Self {
            patience: StorePatience {
                read: create,
                create,
            },
            ..self.clone()
        }
    }

    /// Writes a value if the name is free; otherwise returns the value of the name.
    ///
    /// No two claims may carry the same value: a repeated claim recognises itself by its value. A claim
    /// waits as long as a create, because it comes before a call is accepted.
    pub async fn claim(
        &self,
        name: Name,
        value: Bytes,
        lifetime: Duration,
    ) -> Result<Option<Bytes>, StoreError> {
        // Once for all attempts, because the lifetime counts from the call.
        let expires_ms = self.expires_ms(lifetime);
        patiently(Instant::now() + self.patience.create, || {
            self.store.claim(name, value.clone(), expires_ms)
        })
        .await
    }

    /// Writes a value over any earlier value.
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

    /// Writes `value` if the name holds `expected`, so that no concurrent change is lost. Returns false if
    /// the name holds another value or no value.
    pub async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        let expires_ms = self.expires_ms(lifetime);
        patiently(self.until(), || {
            self.store
                .replace(name, expected.clone(), value.clone(), expires_ms)
        })
        .await
    }

    /// Writes `value` if the name holds what was found under it, a value or none. Returns false if it holds something else.
    ///
    /// No two writes may carry the same value, as no two claims may.
    pub async fn change(
        &self,
        name: Name,
        found: Option<Bytes>,
        value: Bytes,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        if let Some(found) = found {
            return self.replace(name, found, value, lifetime).await;
        }
        Ok(self.claim(name, value, lifetime).await?.is_none())
    }

    pub async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        patiently(self.until(), || self.store.find(name)).await
    }

    /// Notifies every replica that waits for the value of this name to read the value.
    pub async fn tell(&self, name: Name) -> Result<(), StoreError> {
        patiently(self.until(), || self.store.tell(name.told_as())).await
    }

    /// Removes a value or a log. A free name is no error.
    pub async fn remove(&self, name: Name) -> Result<(), StoreError> {
        patiently(self.until(), || self.store.remove(name)).await
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn until(&self) -> Instant {
        Instant::now() + self.patience.read
    }

    fn expires_ms(&self, lifetime: Duration) -> u64 {
        let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        self.now_ms().saturating_add(lifetime)
    }
}
