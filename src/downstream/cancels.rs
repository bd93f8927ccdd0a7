//! A cancel that comes to another replica than the one that carries the request: a note, which that one
//! looks for as long as it carries it. It stays until it expires, since several may look, and says when
//! it was written: a later request of the same id is not meant.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::legacy::pushes::SessionKey;
use super::proxy::Shared;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// How long a cancel waits for the replica that carries the request.
const LIFETIME: Duration = Duration::from_mins(1);

/// How far the clocks of two replicas may be apart.
const CLOCKS_MS: u64 = 1_000;

fn note(session: SessionKey, id: &RawValue) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    Name::of(Kind::Cancel, &[&session, id.get()])
}

/// Tells whichever replica carries the request. Its client does not wait for that.
pub(super) fn pass_on(front: &Shared, session: SessionKey, id: &RawValue) {
    if front.runner.is_alone() {
        return;
    }
    let (front, name) = (Arc::clone(front), note(session, id));
    let passing = front.passing.clone();
    passing.spawn(async move {
        let now_ms = front.runner.ledger().now_ms().to_string();
        if let Err(error) = front.notes.put(name, now_ms.into(), LIFETIME).await {
            tracing::warn!(%error, "a cancel was not passed on to the replica that may carry the call");
        }
    });
}

/// Whether another replica was told to cancel the request that began then. Asks the store once, and not
/// where there is no other replica.
pub(super) async fn is_told(
    front: &Shared,
    session: SessionKey,
    id: &RawValue,
    began_ms: u64,
) -> Result<bool, StoreError> {
    if front.runner.is_alone() {
        return Ok(false);
    }
    let store = front.runner.ledger().store();
    let told = store.find(note(session, id)).await?;
    let told_ms = told.and_then(|told| std::str::from_utf8(&told).ok()?.parse::<u64>().ok());
    Ok(told_ms.is_some_and(|told_ms| told_ms.saturating_add(CLOCKS_MS) >= began_ms))
}

/// Resolves when another replica was told to cancel the request, which begins now.
pub(super) async fn told(front: &Shared, session: SessionKey, id: &RawValue) {
    let began_ms = front.runner.ledger().now_ms();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look.tick().await;
    loop {
        look.tick().await;
        // A store that is away is asked again.
        if matches!(is_told(front, session, id, began_ms).await, Ok(true)) {
            return;
        }
    }
}
