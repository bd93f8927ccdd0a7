//! One limit: a number of calls at the server, a number of calls that wait, first come first served.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::AcquireError;

use crate::base::lock::Mutex;
use crate::sharing::resizable::{ResizablePermit, ResizableSemaphore};
use crate::task::policy::Limit;

/// Permits one leg to be at the server, until it is dropped. It keeps its limiter alive: the next
/// call of the tool must meet the same limiter.
#[derive(Debug)]
pub(super) struct Permit(
    #[expect(dead_code, reason = "held for what dropping it does")] ResizablePermit,
    #[expect(dead_code, reason = "held for as long as the permit is")] Arc<Limiter>,
);

/// Room for one call in the queue, until it is dropped.
#[derive(Debug)]
pub(super) struct QueueSlot(
    #[expect(dead_code, reason = "held for what dropping it does")] ResizablePermit,
);

#[derive(Debug)]
pub(super) struct Limiter {
    /// The semaphore is fair: a permit that becomes free goes to the oldest waiter.
    permits: Arc<ResizableSemaphore>,
    slots: Arc<ResizableSemaphore>,
    waiting: Mutex<Numbers>,
}

/// The numbers of the positions in the queue.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    waiting: BTreeSet<u64>,
}

impl Limiter {
    pub(super) fn new(limit: Limit) -> Arc<Self> {
        Arc::new(Self {
            permits: ResizableSemaphore::new(limit.at_once),
            slots: ResizableSemaphore::new(limit.queue),
            waiting: Mutex::default(),
        })
    }

    /// Changes the limit. Calls that are beyond a smaller one go on; no further one goes out before as many have ended.
    pub(super) fn resize(&self, limit: Limit) {
        self.permits.resize(limit.at_once);
        self.slots.resize(limit.queue);
    }

    /// Takes room in the queue; `None`: the queue is full.
    pub(super) fn slot(&self) -> Option<QueueSlot> {
        self.slots.try_take().ok().map(QueueSlot)
    }

    /// Takes the last position of the queue. The position counts from its first poll on.
    pub(super) fn line_up(self: &Arc<Self>) -> QueuePosition {
        let mut numbers = self.waiting.lock();
        let number = numbers.next;
        numbers.next += 1;
        numbers.waiting.insert(number);
        QueuePosition {
            limiter: Arc::clone(self),
            number,
            // Kept as one future, because a future that is made anew joins the semaphore's queue at its end.
            permit: Box::pin(Arc::clone(&self.permits).take()),
        }
    }
}

/// A position in the queue. Dropping it leaves the queue.
pub(super) struct QueuePosition {
    limiter: Arc<Limiter>,
    number: u64,
    permit: Pin<Box<dyn Future<Output = Result<ResizablePermit, AcquireError>> + Send>>,
}

impl QueuePosition {
    /// Resolves with the permit. The caller must not poll it again after that.
    ///
    /// Cancel safe: dropped before it resolves, the position stays.
    pub(super) async fn permit(&mut self) -> Permit {
        match self.permit.as_mut().await {
            Ok(permit) => Permit(permit, Arc::clone(&self.limiter)),
            // No limiter closes its semaphore.
            Err(_closed) => std::future::pending().await,
        }
    }

    /// The number of calls before this one.
    pub(super) fn ahead(&self) -> usize {
        let numbers = self.limiter.waiting.lock();
        numbers.waiting.range(..self.number).count()
    }
}

impl fmt::Debug for QueuePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueuePosition").field(&self.number).finish()
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        self.limiter.waiting.lock().waiting.remove(&self.number);
    }
}
