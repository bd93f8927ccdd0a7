//! The claims of given-up calls, as far as this process knows of them: until when the store may have one, and which are
//! being written.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::store::kv::Name;

/// The claims of given-up calls, as far as this process knows of them.
#[derive(Debug, Default)]
pub(super) struct GivenUpClaims {
    until_ms: AtomicU64,
    writing: watch::Sender<HashSet<Name>>,
}

impl GivenUpClaims {
    /// Returns `true` if there may be a claim at this time. While no client gave up, this costs one comparison.
    pub(super) fn may_stand(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms != 0 && (now_ms() < until_ms || !self.writing.borrow().is_empty())
    }

    /// Returns `true` if it is known already that there may be claims until then.
    pub(super) fn may_stand_until(&self, until_ms: u64) -> bool {
        self.until_ms.load(Ordering::Relaxed) >= until_ms
    }

    /// Notes that there may be claims until then.
    pub(super) fn stand_until(&self, until_ms: u64) {
        // The highest time counts, because an older mark may be read after a newer one, and an expired mark reads as
        // zero.
        self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Notes that a claim of this name is being written, until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, name: Name) -> ClaimInWriting {
        self.writing.send_modify(|names| {
            names.insert(name);
        });
        // Any time makes requests look at `writing`.
        self.stand_until(1);
        let claims = Arc::clone(self);
        ClaimInWriting { claims, name }
    }

    /// Waits until no claim of this name is being written.
    pub(super) async fn written(&self, name: Name) {
        let mut writing = self.writing.subscribe();
        // The sender lives as long as `self`.
        let _ = writing.wait_for(|names| !names.contains(&name)).await;
    }
}

/// A claim that is being written. Dropped, it is written, or never will be.
#[derive(Debug)]
pub(super) struct ClaimInWriting {
    claims: Arc<GivenUpClaims>,
    name: Name,
}

impl Drop for ClaimInWriting {
    fn drop(&mut self) {
        self.claims.writing.send_modify(|names| {
            names.remove(&self.name);
        });
    }
}
