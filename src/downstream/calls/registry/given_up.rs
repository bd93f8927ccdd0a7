//! A client that makes a call again which still runs: because its clock ended, or because it wants both.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Call, CallEntry, CallRegistry, Calls};
use crate::downstream::inbound::session_key::SessionKey;
use crate::runner::client_note::ClientNote;
use crate::task::digest::Digest;

/// Upper bound of the time by which a cancel arrives later than the call that was sent after it.
const CANCEL_FOLLOWS: Duration = Duration::from_millis(50);

/// Upper bound of the time in which the runner takes over a call whose client gave up.
const KEPT_WITHIN: Duration = Duration::from_secs(1);

/// The ids of given-up calls that are remembered.
const IDS_MAX: usize = 1024;

/// The calls that are remembered as joined.
const JOINED_MAX: usize = 256;

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
#[derive(Debug)]
pub(super) struct Collectable {
    digest: Digest,
    /// The note of the client's front. `None`: the call is joined by no other, because another call came after it, or
    /// because the client says more of it than the tool and the arguments.
    note: Option<ClientNote>,
}

/// What is known of calls that are the same as one that comes.
#[derive(Debug, Default)]
pub(in crate::downstream) struct SameCall {
    /// It runs, and its client's clock may have ended without a cancel.
    pub(in crate::downstream) running: Option<JoinableCall>,
    /// It was joined, and no other call of the session came since.
    pub(in crate::downstream) was_joined: bool,
}

/// A call that runs, and that the same call may join.
#[derive(Debug)]
pub(in crate::downstream) struct JoinableCall {
    pub(in crate::downstream) note: ClientNote,
    cancelled: CancellationToken,
}

impl JoinableCall {
    pub(in crate::downstream) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

/// The calls that were joined lately: another call of the same session ends that, because it may have changed what they read.
/// The oldest make room.
#[derive(Debug, Default)]
pub(super) struct JoinedCalls(VecDeque<(SessionKey, Digest)>);

impl JoinedCalls {
    fn has_of(&self, session: SessionKey) -> bool {
        self.0.iter().any(|(of, _)| *of == session)
    }

    fn contains(&self, session: SessionKey, digest: Digest) -> bool {
        self.0.contains(&(session, digest))
    }

    fn add(&mut self, session: SessionKey, digest: Digest) {
        if self.contains(session, digest) {
            return;
        }
        if self.0.len() >= JOINED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((session, digest));
    }

    fn forget_others(&mut self, session: SessionKey, digest: Digest) {
        self.0.retain(|(of, it)| *of != session || *it == digest);
    }
}

/// The ids under which calls run on that their clients gave up. The oldest make room, and an id is a hash: what collides costs
/// a cancel that the server does not get.
#[derive(Debug, Default)]
pub(super) struct GivenUpIds {
    hash: RandomState,
    ids: VecDeque<u64>,
}

impl GivenUpIds {
    pub(super) fn add(&mut self, session: SessionKey, id: &str) {
        if self.ids.len() >= IDS_MAX {
            self.ids.pop_front();
        }
        self.ids.push_back(self.hash.hash_one((session, id)));
    }

    pub(super) fn contains(&self, session: SessionKey, id: &str) -> bool {
        !self.ids.is_empty() && self.ids.contains(&self.hash.hash_one((session, id)))
    }

    /// The client uses the id for another call.
    pub(super) fn is_used_again(&mut self, session: SessionKey, id: &str) {
        if self.contains(session, id) {
            let used = self.hash.hash_one((session, id));
            self.ids.retain(|id| *id != used);
        }
    }
}

impl CallRegistry {
    /// Waits for what may precede a call that its client makes again as soon as its clock has ended: for the cancel, which
    /// goes over another connection, if the session has the same call running; and until the runner has taken over the
    /// calls that were given up.
    ///
    /// Returns what is known of the same call.
    pub(in crate::downstream) async fn given_up_are_kept(
        &self,
        session: SessionKey,
        digest: impl FnOnce() -> Digest,
    ) -> SameCall {
        let (running, was_joined) = self.calls().same_call(session, digest);
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
    /// also join this one.
    pub(in crate::downstream) fn is_call(&self, digest: Digest, note: Option<ClientNote>) {
        self.update(|call| call.collectable = Some(Collectable { digest, note }));
    }

    /// Notes that the client has waited since then.
    pub(in crate::downstream) fn waits_since(&self, began: Instant) {
        self.update(|call| call.began = began);
    }
}
