//! Bounds the results and the servers' questions that wait in memory for a store that is away, and how many of them are
//! tried again at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The most KiB that wait. A call beyond that fails with `store_lost`.
const KIB_MAX: usize = 256 * 1024;

/// The writes that are tried again at the same time. If thousands are, each takes longer than a command may, and none
/// succeeds although the store is back.
const AGAIN_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Unsaved {
    room: Arc<Semaphore>,
    turns: Semaphore,
}

impl Unsaved {
    pub(super) fn new() -> Self {
        Self {
            room: Arc::new(Semaphore::new(KIB_MAX)),
            turns: Semaphore::new(AGAIN_MAX),
        }
    }

    /// Reserves room for a result or a round of questions, until the permit is dropped. `None`: there is no
    /// room.
    pub(super) fn hold(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
        Arc::clone(&self.room).try_acquire_many_owned(kib).ok()
    }

    /// Waits for the turn to try a write again. The turn ends when the permit is dropped.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

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

    #[test]
    fn so_many_writes_and_no_more_are_tried_again_at_the_same_time() {
        let unsaved = Unsaved::new();
        let turn = || unsaved.turn().now_or_never().flatten();
        let mut turns: Vec<_> = (0..AGAIN_MAX).map(|_| turn().unwrap()).collect();
        assert!(turn().is_none());
        turns.pop();
        assert!(turn().is_some());
    }
}
