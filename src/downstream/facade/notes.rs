//! The notes of these sessions: the one place that reaches for the store. Lifetimes count from now.

use std::time::Duration;

use bytes::Bytes;

use super::super::tasks::Shared;
use crate::store::StoreError;
use crate::store::notes::Name;

pub(super) async fn find(front: &Shared, name: Name) -> Result<Option<Bytes>, StoreError> {
    front.runner.ledger().store().find(name).await
}

/// Writes a note, whatever stood there.
pub(super) async fn put(
    front: &Shared,
    name: Name,
    value: Bytes,
    lifetime: Duration,
) -> Result<(), StoreError> {
    let ledger = front.runner.ledger();
    let expires_ms = expires_ms(front, lifetime);
    ledger.store().put(name, value, expires_ms).await
}

/// Writes a note where none stands. What stands there instead is returned.
pub(super) async fn claim(
    front: &Shared,
    name: Name,
    value: Bytes,
    lifetime: Duration,
) -> Result<Option<Bytes>, StoreError> {
    let ledger = front.runner.ledger();
    let expires_ms = expires_ms(front, lifetime);
    ledger.store().claim(name, value, expires_ms).await
}

pub(super) async fn remove(front: &Shared, name: Name) -> Result<(), StoreError> {
    front.runner.ledger().store().remove(name).await
}

fn expires_ms(front: &Shared, lifetime: Duration) -> u64 {
    let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    front.runner.ledger().now_ms().saturating_add(lifetime)
}
