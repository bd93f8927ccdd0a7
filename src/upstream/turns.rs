//! What is asked of the server by one of all who want to know: whoever waited meanwhile shares what
//! came of it, also where that is nothing. A server that hangs would keep the last in the queue for minutes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns to ask one thing.
#[derive(Debug)]
pub(super) struct Turns {
    one: Arc<Semaphore>,
    /// How many are over.
    over: Arc<AtomicU64>,
}

/// The right to ask, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    over: Arc<AtomicU64>,
    // Given back after `over` has changed: whoever waited for it must see that.
    _one: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            one: Arc::new(Semaphore::new(1)),
            over: Arc::default(),
        }
    }
}

impl Turns {
    /// Waits while somebody asks. `None`: somebody was done with it meanwhile.
    pub(super) async fn take(&self) -> Option<Turn> {
        let before = self.over.load(Ordering::Acquire);
        let one = Arc::clone(&self.one).acquire_owned().await.ok()?;
        let was_asked = self.over.load(Ordering::Acquire) != before;
        (!was_asked).then(|| self.turn(one))
    }

    /// `None`: somebody asks.
    pub(super) fn try_take(&self) -> Option<Turn> {
        let one = Arc::clone(&self.one).try_acquire_owned().ok()?;
        Some(self.turn(one))
    }

    fn turn(&self, one: OwnedSemaphorePermit) -> Turn {
        Turn {
            over: Arc::clone(&self.over),
            _one: one,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.over.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_waited_does_not_ask_again_and_who_comes_later_does() {
        let turns = Turns::default();
        let first = turns.take().await;
        assert!(first.is_some());
        assert!(turns.try_take().is_none());
        let mut waiting = std::pin::pin!(turns.take());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        assert!(waiting.await.is_none());
        assert!(turns.take().await.is_some());
    }
}
