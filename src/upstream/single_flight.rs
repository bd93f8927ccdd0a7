//! One caller asks the server. All callers that want to know the same wait for it and share the outcome, also
//! if it failed. Without that, a server that hangs would keep the last caller in the queue for minutes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Lets one caller ask at a time.
#[derive(Debug)]
pub(in crate::upstream) struct SingleFlight {
    one: Arc<Semaphore>,
    /// The number of questions that have been answered or have failed.
    over: Arc<AtomicU64>,
}

/// The right to ask, until it is dropped.
#[derive(Debug)]
pub(in crate::upstream) struct Flight {
    over: Arc<AtomicU64>,
    // The permit comes back after `over` has changed: a waiting caller must see the change.
    _one: OwnedSemaphorePermit,
}

impl Default for SingleFlight {
    fn default() -> Self {
        Self {
            one: Arc::new(Semaphore::new(1)),
            over: Arc::default(),
        }
    }
}

impl SingleFlight {
    /// Waits while another caller asks. `None`: another caller has asked meanwhile.
    pub(in crate::upstream) async fn take(&self) -> Option<Flight> {
        // Read before the wait, so that a question that ends meanwhile is noticed.
        let before = self.over.load(Ordering::Acquire);
        let one = Arc::clone(&self.one).acquire_owned().await.ok()?;
        let was_asked = self.over.load(Ordering::Acquire) != before;
        (!was_asked).then(|| self.turn(one))
    }

    /// The right to ask. `None`: another caller asks now.
    pub(in crate::upstream) fn try_take(&self) -> Option<Flight> {
        let one = Arc::clone(&self.one).try_acquire_owned().ok()?;
        Some(self.turn(one))
    }

    fn turn(&self, one: OwnedSemaphorePermit) -> Flight {
        Flight {
            over: Arc::clone(&self.over),
            _one: one,
        }
    }
}

impl Drop for Flight {
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
        let turns = SingleFlight::default();
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
