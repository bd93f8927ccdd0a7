//! A client that makes a call again which still runs: because its clock ended, or because it wants both.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::{Call, CallEntry, CallRegistry};
use crate::downstream::inbound::session_key::SessionKey;
use crate::runner::client_note::ClientNote;
use crate::task::digest::Digest;

/// Upper bound of the time by which a cancel arrives later than the call that was sent after it.
const CANCEL_FOLLOWS: Duration = Duration::from_millis(50);

/// Upper bound of the time in which the runner takes over a call whose client gave up.
const KEPT_WITHIN: Duration = Duration::from_secs(1);

/// No client's clock is shorter. Two calls that a client wants both usually begin within this time.
const SHORTEST_CLOCK: Duration = Duration::from_secs(2);

/// The calls whose clients have given up, and which are still in the registry.
#[derive(Debug, Default)]
pub(super) struct GivingUp {
    count: AtomicUsize,
    /// Notified when one of them leaves.
    left: Notify,
}

impl GivingUp {
    pub(super) fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.left.notify_waiters();
    }
}

/// A `tools/call` that the same call can collect.
#[derive(Debug, Clone)]
pub(super) struct Collectable {
    digest: Digest,
    began: Instant,
    note: ClientNote,
}

impl CallRegistry {
    /// Waits for what may precede a call that its client makes again as soon as its clock has ended: for the cancel, which
    /// goes over another connection, if the session has the same call running; and until the runner has taken over the
    /// calls that were given up.
    ///
    /// Returns the note of the same call if that runs on, and has run for so long that its client's clock may have ended
    /// without a cancel.
    pub(in crate::downstream) async fn given_up_are_kept(
        &self,
        session: SessionKey,
        digest: impl FnOnce() -> Digest,
    ) -> Option<ClientNote> {
        let running: Vec<_> = {
            let calls = self.calls();
            let of_session = calls.of_session(session);
            let running = of_session.filter(|call| !call.cancelled.is_cancelled());
            let running = running
                .filter_map(|call| Some((call.collectable.clone()?, call.cancelled.clone())));
            running.collect()
        };
        let mut same = None;
        if !running.is_empty() {
            let digest = digest();
            same = running.into_iter().find(|(of, _)| of.digest == digest);
        }
        let mut note = None;
        if let Some((call, cancelled)) = same
            && timeout(CANCEL_FOLLOWS, cancelled.cancelled())
                .await
                .is_err()
            && Instant::now().saturating_duration_since(call.began) >= SHORTEST_CLOCK
        {
            note = Some(call.note);
        }
        // Nearly always no client has given up, and then the lock is not taken once more.
        if self.giving_up.count.load(Ordering::Relaxed) > 0 {
            let _ = timeout(KEPT_WITHIN, self.all_left(session)).await;
        }
        note
    }

    /// Waits until no call of the session is in the registry whose client gave up.
    async fn all_left(&self, session: SessionKey) {
        loop {
            // Before the look, so that no notification is missed.
            let left = self.giving_up.left.notified();
            let gave_up = |call: &Call| call.gave_up.load(Ordering::Relaxed);
            if !self.calls().of_session(session).any(gave_up) {
                return;
            }
            left.await;
        }
    }
}

impl CallEntry {
    /// Notes that the same call, with this digest, can collect this one. `note`: of the client's front.
    pub(in crate::downstream) fn is_call(&self, digest: Digest, note: ClientNote) {
        let began = Instant::now();
        let collectable = Collectable {
            digest,
            began,
            note,
        };
        self.update(|call| call.collectable = Some(collectable));
    }
}
