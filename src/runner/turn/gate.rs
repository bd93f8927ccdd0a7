//! One limit: so many calls at the server, so many more in its queue, first come first served.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::lock::Mutex;
use crate::task::policy::Limit;

/// A place at the server; free again when dropped. The gate is there for as long as anybody has one
/// of its places: who comes next must meet the same.
#[derive(Debug)]
pub(super) struct Place(
    #[expect(dead_code, reason = "held for what dropping it does")] OwnedSemaphorePermit,
    #[expect(dead_code, reason = "held for as long as the place is")] Arc<Gate>,
);

/// Room in the queue; free again when dropped.
#[derive(Debug)]
pub(super) struct Room(
    #[expect(dead_code, reason = "held for what dropping it does")] OwnedSemaphorePermit,
);

#[derive(Debug)]
pub(super) struct Gate {
    /// Fair: a place that becomes free is the oldest waiter's.
    places: Arc<Semaphore>,
    rooms: Arc<Semaphore>,
    waiting: Mutex<Numbers>,
}

/// The numbers that were drawn and not called yet.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    drawn: BTreeSet<u64>,
}

impl Gate {
    pub(super) fn new(limit: Limit) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(limit.at_once)),
            rooms: Arc::new(Semaphore::new(limit.queue)),
            waiting: Mutex::default(),
        })
    }

    /// Room to wait in; `None`: the queue is full.
    pub(super) fn room(&self) -> Option<Room> {
        Arc::clone(&self.rooms).try_acquire_owned().ok().map(Room)
    }

    /// Draws a number. It is in the queue once it was polled.
    pub(super) fn draw(self: &Arc<Self>) -> Number {
        let mut waiting = self.waiting();
        let drawn = waiting.next;
        waiting.next += 1;
        waiting.drawn.insert(drawn);
        Number {
            gate: Arc::clone(self),
            drawn,
            called: Box::pin(Arc::clone(&self.places).acquire_owned()),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Numbers> {
        self.waiting.lock()
    }
}

/// A number in the queue; given up when dropped.
pub(super) struct Number {
    gate: Arc<Gate>,
    drawn: u64,
    called: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>,
}

impl Number {
    /// Resolves when it is called; not to be asked again after that.
    ///
    /// Cancel safe: dropped before it resolves, its place in the queue stays.
    pub(super) async fn called(&mut self) -> Place {
        match self.called.as_mut().await {
            Ok(permit) => Place(permit, Arc::clone(&self.gate)),
            // No gate is ever closed.
            Err(_closed) => std::future::pending().await,
        }
    }

    /// How many are called before it.
    pub(super) fn before(&self) -> usize {
        self.gate.waiting().drawn.range(..self.drawn).count()
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Number").field(&self.drawn).finish()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.gate.waiting().drawn.remove(&self.drawn);
    }
}
