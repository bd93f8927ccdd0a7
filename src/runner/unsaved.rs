//! Bounds the results and the servers' questions that wait in memory for a store that is away.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most KiB that wait. A call beyond that fails with `store_lost`.
const KIB_MAX: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Unsaved(Arc<Semaphore>);

impl Unsaved {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(KIB_MAX)))
    }

    /// Reserves room for a result or a round of questions, until the permit is dropped. `None`: there is no
    /// room.
    pub(super) fn hold(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(kib).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_much_and_no_more() {
        let unsaved = Unsaved::new();
        let all = unsaved.hold(KIB_MAX * 1024).unwrap();
        assert!(unsaved.hold(1).is_none());
        drop(all);
        assert!(unsaved.hold(1).is_some());
        assert!(unsaved.hold(usize::MAX).is_none());
    }
}
