//! The look for a call that is the same as one that comes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::given_up::{Collectable, JoinableCall, SameCall};
use super::{Call, CallEntry, CallRegistry, Calls};
use crate::downstream::inbound::session_key::SessionKey;
use crate::runner::client_note::ClientNote;
use crate::task::digest::Digest;

/// Upper bound of the time by which a cancel arrives later than the call that was sent after it.
const CANCEL_FOLLOWS: Duration = Duration::from_millis(50);

/// Upper bound of the time in which the runner takes over a call whose client gave up.
const KEPT_WITHIN: Duration = Duration::from_secs(1);

/// No client's clock is shorter. Two calls that a client wants both usually begin within this time.
const SHORTEST_CLOCK: Duration = Duration::from_secs(2);

impl CallRegistry {
    /// Waits for what may precede a call that its client makes again as soon as its clock has ended: for the cancel, which
    /// goes over another connection, if the session has the same call running; and until the runner has taken over the
    /// calls that were given up.
    ///
    /// Returns what is known of the same call. `id`: of the call that comes, as JSON.
    pub(in crate::downstream) async fn given_up_are_kept(
        &self,
        (session, id): (SessionKey, &str),
        digest: impl FnOnce() -> Digest,
    ) -> SameCall {
        let (running, was_joined) = {
            let mut calls = self.calls();
            // A cancel with this id is for the call that comes, which is in the registry only if it takes long.
            calls.given_up.is_used_again(session, id);
            calls.same_call(session, digest)
        };
        let mut same = SameCall {
            running: None,
            was_joined,
        };
        if let Some((note, began, cancelled)) = running
            && timeout(CANCEL_FOLLOWS, cancelled.cancelled())
                .await
                .is_err()
            && Instant::now().saturating_duration_since(began) >= SHORTEST_CLOCK
        {
            same.running = note.map(|note| JoinableCall { note, cancelled });
        }
        // Nearly always no client has given up, and then the lock is not taken once more.
        if self.giving_up.count.load(Ordering::Relaxed) > 0 {
            let _ = timeout(KEPT_WITHIN, self.all_left(session)).await;
        }
        same
    }

    /// Notes that the call of the session with this digest was joined.
    pub(in crate::downstream) fn is_joined(&self, session: SessionKey, digest: Digest) {
        self.calls().joined.add(session, digest);
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

/// The same call, which runs: the note of its client's front, since when its client waits, and whether it was cancelled.
type Running = (Option<ClientNote>, Instant, CancellationToken);

impl Calls {
    /// Returns the same call of the session, if that runs, and whether it was joined.
    fn same_call(
        &mut self,
        session: SessionKey,
        digest: impl FnOnce() -> Digest,
    ) -> (Option<Running>, bool) {
        let of_session = self.of_sessions.get_mut(&session);
        let running = of_session.into_iter().flat_map(BTreeMap::values_mut);
        let running = running.filter(|call| !call.cancelled.is_cancelled());
        let mut running: Vec<&mut Call> =
            running.filter(|call| call.collectable.is_some()).collect();
        if running.is_empty() && !self.joined.has_of(session) {
            return (None, false);
        }
        let digest = digest();
        let mut same = None;
        for call in &running {
            if let Some(collectable) = &call.collectable
                && collectable.digest == digest
            {
                same = Some((collectable.note.clone(), call.began, call.cancelled.clone()));
            }
        }
        if same.is_none() {
            let now = Instant::now();
            for call in &mut running {
                // Calls that begin together were made without the results of each other.
                if now.saturating_duration_since(call.began) >= SHORTEST_CLOCK
                    && let Some(collectable) = &mut call.collectable
                {
                    collectable.note = None;
                }
            }
            self.joined.forget_others(session, digest);
        }
        (same, self.joined.contains(session, digest))
    }
}

impl CallEntry {
    /// Notes that the same call, with this digest, can collect this one. `note`: of the client's front, if the same call may
    /// also join this one. Returns `false` if it runs under this id already: then the request was sent twice.
    pub(in crate::downstream) fn is_call(&self, digest: Digest, note: Option<ClientNote>) -> bool {
        let mut calls = self.registry.calls();
        let Some(of_session) = calls.of_sessions.get_mut(&self.session) else {
            return true;
        };
        let Some(mut own) = of_session.remove(&self.number) else {
            return true;
        };
        let is_same = |call: &Call| call.has(&own.id) && call.digest() == Some(digest);
        let is_first = !of_session.values().any(is_same);
        own.collectable = Some(Collectable { digest, note });
        of_session.insert(self.number, own);
        is_first
    }

    /// Notes that the client has waited since then.
    pub(in crate::downstream) fn waits_since(&self, began: Instant) {
        self.update(|call| call.began = began);
    }
}
