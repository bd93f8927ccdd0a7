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
use crate::downstream::inbound::request::CancelMessage;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::runner::client_note::Leaving;
use crate::store::kv::{Kind, Name};
use crate::store::quota::{Allowance, OverQuota, Quotas};
use crate::task::gave_up::CancelCause;
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
    cancel: &CancelMessage<'_>,
) -> Cancelled {
    let cancelled = proxy.calls.cancel(session, cancel.id.get(), cancel.cause);
    if cancelled == Cancelled::Nothing {
        tell_others(proxy, caller, session, cancel);
    }
    cancelled
}

/// Writes the cancel into the store, unless the caller has cancelled too many calls that do not run here: this
/// replica cannot find out which of them run elsewhere. The client does not wait for that.
fn tell_others(
    proxy: &Arc<Proxy>,
    caller: Caller,
    session: SessionKey,
    cancel: &CancelMessage<'_>,
) {
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
    let (proxy, name) = (Arc::clone(proxy), name(session, cancel.id));
    // How long the client has waited is known where the call runs.
    let how = if cancel.cause == CancelCause::Clock {
        Leaving::GaveUp
    } else {
        Leaving::Cancelled
    };
    let value = value(now_ms, how);
    let passing = proxy.passing.clone();
    // A tracked job, so that a drain waits until the cancel is written.
    passing.spawn(async move {
        let kv = &proxy.kv;
        let written = async {
            let lifetime = Duration::from_millis(LIFETIME_MS);
            // The value comes before the notification, because the other replica reads it at once.
            kv.put(name, value.into(), lifetime).await?;
            kv.tell(name).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "a cancel was not passed on to the replica that may carry the call");
        }
    });
}

fn name(session: SessionKey, id: &RawValue) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    // The key of the session is made from its caller, so no other caller can write under this name.
    Name::of(Kind::Cancel, &[&session, id.get()])
}

/// Resolves when the client cancels, at another replica, the call that began then.
pub(in crate::downstream) fn cancelled_elsewhere(
    proxy: &Arc<Proxy>,
    session: SessionKey,
    id: &RawValue,
    began_ms: u64,
) -> impl Future<Output = Leaving> + Send + use<> {
    let (proxy, name, id) = (Arc::clone(proxy), name(session, id), id.to_owned());
    async move {
        // Most calls are answered before, and cost nothing.
        tokio::time::sleep(LOOK).await;
        // The watch begins before the first read, so that no cancel falls in between.
        let watch = proxy.runner.watch_value(name);
        let mut found = watch.now().await;
        loop {
            // Of several calls with that id, none is cancelled.
            if let Some(how) = found.and_then(|found| how_for_call(&found, began_ms))
                && !proxy.calls.share(session, id.get())
            {
                return how;
            }
            found = watch.told().await;
        }
    }
}

/// Follows the time of the cancel of a client whose clock ended.
const GAVE_UP: &str = " gave up";

fn value(now_ms: u64, how: Leaving) -> String {
    let suffix = if how == Leaving::GaveUp { GAVE_UP } else { "" };
    format!("{now_ms}{suffix}")
}

/// Returns how the client left. `None`: the cancel was written for an earlier call with the same id, and not for the call
/// that began then.
fn how_for_call(cancel: &[u8], began_ms: u64) -> Option<Leaving> {
    let text = std::str::from_utf8(cancel).ok()?;
    let (told_ms, how) = match text.strip_suffix(GAVE_UP) {
        Some(told_ms) => (told_ms, Leaving::GaveUp),
        None => (text, Leaving::Cancelled),
    };
    let told_ms = told_ms.parse::<u64>().ok()?;
    (told_ms.saturating_add(CLOCKS_MS) >= began_ms).then_some(how)
}

/// Resolves when the client cancels this call, which begins now, on any replica. Cancel safe.
///
/// `session`: the one that the client names; without a session no cancel comes to another replica.
pub(in crate::downstream) async fn cancelled(
    proxy: &Arc<Proxy>,
    call: &CallEntry,
    session: Option<SessionKey>,
    id: &RawValue,
) -> Leaving {
    let elsewhere = async {
        let Some(session) = session else {
            return std::future::pending().await;
        };
        let began_ms = proxy.runner.ledger().now_ms();
        cancelled_elsewhere(proxy, session, id, began_ms).await
    };
    tokio::select! {
        how = call.cancelled() => how,
        how = elsewhere => how,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_is_for_no_later_call_with_the_same_id() {
        let (cancelled, gave_up) = (Some(Leaving::Cancelled), Some(Leaving::GaveUp));
        for (cancel, began_ms, expected) in [
            (value(5_000, Leaving::Cancelled), 4_000, cancelled),
            (value(5_000, Leaving::GaveUp), 4_000, gave_up),
            ("5000".into(), 5_000, cancelled),
            ("5000".into(), 5_000 + CLOCKS_MS, cancelled),
            ("5000".into(), 5_001 + CLOCKS_MS, None),
            ("5000 gave up".into(), 5_001 + CLOCKS_MS, None),
            (String::new(), 0, None),
            ("x".into(), 0, None),
        ] {
            assert_eq!(
                how_for_call(cancel.as_bytes(), began_ms),
                expected,
                "{cancel} {began_ms}"
            );
        }
    }
}
