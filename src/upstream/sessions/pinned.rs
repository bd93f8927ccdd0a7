//! The sessions that pins hold.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::upstream::pin::{Pin, Pinned};
use crate::upstream::sessions::pool::SessionLease;
use crate::upstream::sessions::session::ServerSession;

enum PinnedSession {
    Own(SessionLease),
    /// A client's own session.
    Client(SessionLease),
}

impl PinnedSession {
    fn lease(&self) -> &SessionLease {
        match self {
            Self::Own(lease) | Self::Client(lease) => lease,
        }
    }
}

impl Pinned for PinnedSession {
    fn is_a_clients(&self) -> bool {
        // Without an id there is no session that holds anything, so any replica may send the call.
        self.stays() && self.lease().session.has_id()
    }

    fn stays(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    fn keep(&self) -> Option<TaskTrackerToken> {
        match self {
            Self::Own(_) => None,
            Self::Client(lease) => Some(lease.session.needed().token()),
        }
    }

    fn give_back(self: Box<Self>) {
        match *self {
            Self::Own(lease) | Self::Client(lease) => lease.give_back(),
        }
    }
}

/// A pin to a client's own session.
pub(in crate::upstream) fn to_client(lease: SessionLease) -> Pin {
    Pin::of(PinnedSession::Client(lease))
}

/// Cancelled when the client ends the session that the pin holds. For any other pin, never.
pub(in crate::upstream) fn ended(pin: &Pin) -> CancellationToken {
    let ended = pin.with(|held: &PinnedSession| match held {
        PinnedSession::Own(_) => None,
        PinnedSession::Client(lease) => Some(lease.session.ended()),
    });
    ended.unwrap_or_default()
}

/// The session that the pin holds, for one more request.
pub(in crate::upstream) fn session(pin: &Pin) -> Option<SessionLease> {
    pin.with(|held: &PinnedSession| Some(held.lease().also()))
}

/// The session that the pin holds, to look at.
pub(in crate::upstream) fn session_of(pin: &Pin) -> Option<Arc<ServerSession>> {
    pin.with(|held: &PinnedSession| Some(Arc::clone(&held.lease().session)))
}

/// A pin to a session that another process opened.
pub(in crate::upstream) fn to_adopted(lease: SessionLease) -> Pin {
    Pin::of(PinnedSession::Own(lease))
}

/// Lets the pin hold the session of an answered request, if it holds none yet.
pub(in crate::upstream) fn hold(pin: &Pin, lease: SessionLease) {
    // Another request of the pin may have been answered first, and its session is the one that stays.
    if let Some(PinnedSession::Own(another)) = pin.hold_first(PinnedSession::Own(lease)) {
        another.give_back();
    }
}

/// The server has lost the session, so the pin holds the next one.
pub(in crate::upstream) fn lose(pin: &Pin) {
    pin.lose::<PinnedSession>();
}
