//! What the registry remembers of calls that clients give up, or make again while they run.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::downstream::inbound::session_key::SessionKey;
use crate::runner::client_note::ClientNote;
use crate::task::digest::Digest;

/// The ids of given-up calls that are remembered.
const IDS_MAX: usize = 1024;

/// The calls that are remembered as joined.
const JOINED_MAX: usize = 256;

/// The calls whose clients have given up, and which are still in the registry.
#[derive(Debug, Default)]
pub(super) struct GivingUp {
    pub(super) count: AtomicUsize,
    /// Notified when one of them leaves.
    pub(super) left: Notify,
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
    pub(super) digest: Digest,
    /// The note of the client's front. `None`: the call is joined by no other, because another call came after it, or
    /// because the client says more of it than the tool and the arguments.
    pub(super) note: Option<ClientNote>,
}

/// The known facts about calls that are the same as one that comes.
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
    pub(super) cancelled: CancellationToken,
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
    pub(super) fn has_of(&self, session: SessionKey) -> bool {
        self.0.iter().any(|(of, _)| *of == session)
    }

    pub(super) fn contains(&self, session: SessionKey, digest: Digest) -> bool {
        self.0.contains(&(session, digest))
    }

    pub(super) fn add(&mut self, session: SessionKey, digest: Digest) {
        if self.contains(session, digest) {
            return;
        }
        if self.0.len() >= JOINED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((session, digest));
    }

    pub(super) fn forget_others(&mut self, session: SessionKey, digest: Digest) {
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
