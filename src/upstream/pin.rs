//! What keeps several requests on one session of the server.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::sessions::Lease;

/// Requests that bear the same pin use the session of the first of them, also at the same time.
/// Dropped with all its clones, the session is given up.
#[derive(Clone, Default)]
pub struct Pin(Arc<Mutex<Option<Lease>>>);

impl Pin {
    fn held(&self) -> MutexGuard<'_, Option<Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that is held, for one more request.
    pub(super) fn also(&self) -> Option<Lease> {
        self.held().as_ref().map(Lease::also)
    }

    /// Holds the session of an answered request; the first one's.
    pub(super) fn hold(&self, lease: Lease) {
        let mut held = self.held();
        if held.is_none() {
            *held = Some(lease);
            return;
        }
        drop(held);
        lease.give_back();
    }

    /// All is answered: the session is free for other calls.
    pub(super) fn give_back(&self) {
        let held = self.held().take();
        if let Some(lease) = held {
            lease.give_back();
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin")
    }
}
