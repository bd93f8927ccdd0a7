//! A client's cancel of a call that runs on any replica.
//!
//! Where no such call runs here, the cancel is written into the store. The replica that runs the call looks for it
//! as long as the call runs. The value stays until it expires, because several replicas may look, and says when it
//! was written: a later request with the same id is not meant.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::registry::{CallEntry, Cancelled};
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};

/// The pause between two looks into the store.
const LOOK: Duration = Duration::from_secs(2);

/// How long a cancel waits for the replica that runs the call.
const LIFETIME: Duration = Duration::from_mins(1);

/// How far the clocks of two replicas may be apart.
const CLOCKS_MS: u64 = 1_000;

/// Cancels a call of the session on this replica, or else tells the replica that runs it.
pub(in crate::downstream) fn cancel(
    proxy: &Arc<Proxy>,
    session: SessionKey,
    id: &RawValue,
) -> Cancelled {
    let cancelled = proxy.calls.cancel(session, id.get());
    if cancelled == Cancelled::Nothing {
        tell_others(proxy, session, id);
    }
    cancelled
}

/// Writes the cancel into the store. The client does not wait for that.
fn tell_others(proxy: &Arc<Proxy>, session: SessionKey, id: &RawValue) {
    if proxy.runner.is_alone() {
        return;
    }
    let (proxy, name) = (Arc::clone(proxy), name(session, id));
    let passing = proxy.passing.clone();
    passing.spawn(async move {
        let now_ms = proxy.runner.ledger().now_ms().to_string();
        if let Err(error) = proxy.kv.put(name, now_ms.into(), LIFETIME).await {
            tracing::warn!(%error, "a cancel was not passed on to the replica that may carry the call");
        }
    });
}

fn name(session: SessionKey, id: &RawValue) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    Name::of(Kind::Cancel, &[&session, id.get()])
}

/// Whether another replica was told to cancel the call that began then. Asks the store once, and not at all where
/// there is no other replica.
pub(in crate::downstream) async fn is_cancelled_elsewhere(
    proxy: &Arc<Proxy>,
    session: SessionKey,
    id: &RawValue,
    began_ms: u64,
) -> Result<bool, StoreError> {
    if proxy.runner.is_alone() {
        return Ok(false);
    }
    let store = proxy.runner.ledger().store();
    let found = store.find(name(session, id)).await?;
    let told_ms = found.and_then(|found| std::str::from_utf8(&found).ok()?.parse::<u64>().ok());
    Ok(told_ms.is_some_and(|told_ms| told_ms.saturating_add(CLOCKS_MS) >= began_ms))
}

/// Resolves when the client cancels this call, which begins now, on any replica. Cancel safe.
///
/// `session`: the one that the client names; without a session no cancel comes to another replica.
pub(in crate::downstream) async fn cancelled(
    proxy: &Arc<Proxy>,
    call: &CallEntry,
    session: Option<SessionKey>,
    id: &RawValue,
) {
    let elsewhere = async {
        match session {
            Some(session) => cancelled_elsewhere(proxy, session, id).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = call.cancelled() => {}
        () = elsewhere => {}
    }
}

async fn cancelled_elsewhere(proxy: &Arc<Proxy>, session: SessionKey, id: &RawValue) {
    let began_ms = proxy.runner.ledger().now_ms();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look.tick().await;
    loop {
        look.tick().await;
        // A store that is away is asked again.
        let found = is_cancelled_elsewhere(proxy, session, id, began_ms).await;
        if matches!(found, Ok(true)) {
            return;
        }
    }
}
