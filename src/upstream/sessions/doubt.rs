//! A doubt whether a server still has a session.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is set after a request on the session failed, so that the next one needs proof that the server has the
/// session.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Doubt(AtomicBool);

impl Doubt {
    pub(in crate::upstream) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
