//! A cancel that comes to another replica than the one that carries the call: a note, which that one
//! looks for now and then.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::super::super::tasks::Shared;
use super::super::pushes::SessionKey;
use crate::store::notes::{Kind, Name};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// How long a cancel waits for the replica that carries the call.
const LIFETIME: Duration = Duration::from_mins(1);

fn note(session: SessionKey, id: &RawValue) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    Name::of(Kind::Answer, &["cancelled", &session, id.get()])
}

/// Passes a cancel on to whichever replica carries the call. Its client does not wait for that.
pub(super) fn pass_on(front: &Shared, session: SessionKey, id: &RawValue) {
    let (front, name) = (Arc::clone(front), note(session, id));
    let passing = front.passing.clone();
    passing.spawn(async move {
        if let Err(error) = front.notes.put(name, "1".into(), LIFETIME).await {
            tracing::warn!(%error, "a cancel was not passed on to the replica that may carry the call");
        }
    });
}

/// Resolves when another replica was told to cancel the call.
pub(super) async fn cancelled_elsewhere(front: &Shared, session: SessionKey, id: &RawValue) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look.tick().await;
    let name = note(session, id);
    loop {
        look.tick().await;
        // A store that is away is asked again.
        if matches!(front.notes.find(name).await, Ok(Some(_))) {
            return;
        }
    }
}
