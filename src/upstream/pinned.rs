//! The sessions that pins hold.

use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::pin::{Pin, Pinned};
use super::sessions::Lease;

enum PinnedSession {
    Own(Lease),
    /// A client's own.
    Client(Lease),
}

impl PinnedSession {
    fn lease(&self) -> &Lease {
        match self {
            Self::Own(lease) | Self::Client(lease) => lease,
        }
    }
}

impl Pinned for PinnedSession {
    fn is_a_clients(&self) -> bool {
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
pub(super) fn to_client(lease: Lease) -> Pin {
    Pin::of(PinnedSession::Client(lease))
}

/// Cancelled when the client ends the session that the pin leads to. Else never.
pub(super) fn ended(pin: &Pin) -> CancellationToken {
    let ended = pin.held(|held: &PinnedSession| match held {
        PinnedSession::Own(_) => None,
        PinnedSession::Client(lease) => Some(lease.session.ended()),
    });
    ended.unwrap_or_default()
}

/// The session that is held, for one more request.
pub(super) fn session(pin: &Pin) -> Option<Lease> {
    pin.held(|held: &PinnedSession| Some(held.lease().also()))
}

/// Holds the session of an answered request; the first one's.
pub(super) fn hold(pin: &Pin, lease: Lease) {
    if let Some(PinnedSession::Own(another)) = pin.hold_first(PinnedSession::Own(lease)) {
        another.give_back();
    }
}

/// The server knows the session no more: the next one is held.
pub(super) fn lose(pin: &Pin) {
    pin.lose::<PinnedSession>();
}
