//! A client's cancel of a call that runs on any replica.
//!
//! Where no such call runs here, the cancel is written into the store, and the change log notifies the replica that
//! runs the call. The value stays until it expires, because several replicas may read it, and contains the time of
//! the write: it does not cancel a later request with the same id.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use uuid::Uuid;

use super::registry::{CallEntry, Cancelled};
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::store::kv::{Kind, Name};
use crate::store::quota::{Allowance, OverQuota, Quotas};
use crate::task::id::Caller;

/// The time that a call runs before it looks for a cancel that came to another replica.
const LOOK: Duration = Duration::from_secs(1);

/// The time that a cancel waits for the replica that runs the call.
const LIFETIME_MS: u64 = 60_000;

/// The cancels that this process writes in a minute, of one caller and of all. A real client cancels what it called.
pub fn quotas() -> Quotas {
    let most = |entries| Allowance {
        entries,
        ..Allowance::ANY
    };
    Quotas::new(most(256), most(4_096))
}

/// Upper bound of the difference between the clocks of two replicas.
const CLOCKS_MS: u64 = 1_000;

/// Cancels a call of the session on this replica, or else notifies the replica that runs it.
pub(in crate::downstream) fn cancel(
    proxy: &Arc<Proxy>,
    caller: Caller,
    session: SessionKey,
    id: &RawValue,
) -> Cancelled {
    let cancelled = proxy.calls.cancel(session, id.get());
    if cancelled == Cancelled::Nothing {
        tell_others(proxy, caller, session, id);
    }
    cancelled
}

/// Writes the cancel into the store, unless the caller has cancelled too many calls that do not run here: this
/// replica cannot find out which of them run elsewhere. The client does not wait for that.
fn tell_others(proxy: &Arc<Proxy>, caller: Caller, session: SessionKey, id: &RawValue) {
    // No other replica uses the store, so no other can run the call.
    if proxy.runner.is_alone() {
        return;
    }
    let now_ms = proxy.runner.ledger().now_ms();
    let expires_ms = now_ms.saturating_add(LIFETIME_MS);
    if let Err(OverQuota) = proxy.cancels.enter(caller, 0, expires_ms, now_ms) {
        tracing::debug!("a caller cancels too many calls that do not run here");
        return;
    }
    let (proxy, name) = (Arc::clone(proxy), name(session, id));
    let passing = proxy.passing.clone();
    // A tracked job, so that a drain waits until the cancel is written.
    passing.spawn(async move {
        let kv = &proxy.kv;
        let written = async {
            let lifetime = Duration::from_millis(LIFETIME_MS);
            // The value comes before the notification, because the other replica reads it at once.
            kv.put(name, now_ms.to_string().into(), lifetime).await?;
            kv.tell(name).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "a cancel was not passed on to the replica that may carry the call");
        }
    });
}

fn name(session: SessionKey, id: &RawValue) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    Name::of(Kind::Cancel, &[&session, id.get()])
}

/// Resolves when the client cancels, at another replica, the call that began then.
pub(in crate::downstream) fn cancelled_elsewhere(
    proxy: &Arc<Proxy>,
    session: SessionKey,
    id: &RawValue,
    began_ms: u64,
) -> impl Future<Output = ()> + Send + use<> {
    let (proxy, name) = (Arc::clone(proxy), name(session, id));
    async move {
        // Most calls are answered before, and cost nothing.
        tokio::time::sleep(LOOK).await;
        // The watch begins before the first read, so that no cancel falls in between.
        let watch = proxy.runner.watch_value(name);
        let mut found = watch.now().await;
        while !found.is_some_and(|found| is_for_call(&found, began_ms)) {
            found = watch.told().await;
        }
    }
}

/// Returns `true` if the cancel was written for the call that began then, and not for an earlier one with the same
/// id.
fn is_for_call(cancel: &[u8], began_ms: u64) -> bool {
    let text = std::str::from_utf8(cancel).ok();
    let told_ms = text.and_then(|text| text.parse::<u64>().ok());
    told_ms.is_some_and(|told_ms| told_ms.saturating_add(CLOCKS_MS) >= began_ms)
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
        let Some(session) = session else {
            return std::future::pending().await;
        };
        let began_ms = proxy.runner.ledger().now_ms();
        cancelled_elsewhere(proxy, session, id, began_ms).await;
    };
    tokio::select! {
        () = call.cancelled() => {}
        () = elsewhere => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_is_for_no_later_call_with_the_same_id() {
        for (cancel, began_ms, expected) in [
            ("5000", 4_000, true),
            ("5000", 5_000, true),
            ("5000", 5_000 + CLOCKS_MS, true),
            ("5000", 5_001 + CLOCKS_MS, false),
            ("", 0, false),
            ("x", 0, false),
        ] {
            assert_eq!(
                is_for_call(cancel.as_bytes(), began_ms),
                expected,
                "{cancel} {began_ms}"
            );
        }
    }
}
