//! What is asked of the server by one of all who want to know: whoever waited meanwhile shares what
//! came of it, also where that is nothing. A server that hangs would keep the last in the queue for minutes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The turns to ask one thing.
#[derive(Debug)]
pub(super) struct Turns {
    one: Arc<Semaphore>,
    /// When the last turn was over.
    over: Arc<Mutex<Option<Instant>>>,
}

/// The right to ask, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    over: Arc<Mutex<Option<Instant>>>,
    // Given back after `over` is set: whoever has it next must see that.
    _one: OwnedSemaphorePermit,
}

fn locked(over: &Mutex<Option<Instant>>) -> MutexGuard<'_, Option<Instant>> {
    over.lock().unwrap_or_else(PoisonError::into_inner)
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
        let since = Instant::now();
        let one = Arc::clone(&self.one).acquire_owned().await.ok()?;
        let was_asked = locked(&self.over).is_some_and(|over| over >= since);
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
        *locked(&self.over) = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waited_does_not_ask_again_and_who_comes_later_does() {
        let turns = Turns::default();
        let first = turns.take().await;
        assert!(first.is_some());
        assert!(turns.try_take().is_none());
        let mut waiting = std::pin::pin!(turns.take());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        assert!(waiting.await.is_none());
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
        assert!(turns.take().await.is_some());
    }
}
