//! A cancel that comes to another replica than the one that carries the request: a note, which that one
//! looks for as long as it carries it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::legacy::pushes::SessionKey;
use super::tasks::Shared;
use crate::store::StoreError;
use crate::store::notes::{Kind, Name};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// How long a cancel waits for the replica that carries the request.
const LIFETIME: Duration = Duration::from_mins(1);

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
        if let Err(error) = front.notes.put(name, Bytes::new(), LIFETIME).await {
            tracing::warn!(%error, "a cancel was not passed on to the replica that may carry the call");
        }
    });
}

/// Whether another replica was told to cancel the request. Asks the store once, and not where there
/// is no other replica.
pub(super) async fn is_told(
    front: &Shared,
    session: SessionKey,
    id: &RawValue,
) -> Result<bool, StoreError> {
    if front.runner.is_alone() {
        return Ok(false);
    }
    let store = front.runner.ledger().store();
    Ok(store.find(note(session, id)).await?.is_some())
}

/// Resolves when another replica was told to cancel the request.
pub(super) async fn told(front: &Shared, session: SessionKey, id: &RawValue) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look.tick().await;
    loop {
        look.tick().await;
        // A store that is away is asked again.
        if matches!(is_told(front, session, id).await, Ok(true)) {
            return;
        }
    }
}
