//! A semaphore whose size may change while its permits are out: a limit that an operator changes on the fly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::base::lock::Mutex;

/// A fair semaphore. Taking and returning a permit takes no lock beyond the semaphore's own.
#[derive(Debug)]
pub struct ResizableSemaphore {
    semaphore: Arc<Semaphore>,
    /// The number of permits, those that are out included.
    size: Mutex<usize>,
    /// The number of permits that disappear when they are returned: the semaphore became smaller while they were out.
    owed: AtomicUsize,
}

/// Dropping it returns the permit.
#[derive(Debug)]
pub struct ResizablePermit {
    permit: Option<OwnedSemaphorePermit>,
    of: Arc<ResizableSemaphore>,
}

impl ResizableSemaphore {
    pub fn new(size: usize) -> Arc<Self> {
        Arc::new(Self {
            semaphore: Arc::new(Semaphore::new(size)),
            size: Mutex::new(size),
            owed: AtomicUsize::new(0),
        })
    }

    /// Waits for a permit, behind those that wait already. Cancel safe.
    pub async fn take(self: Arc<Self>) -> Result<ResizablePermit, AcquireError> {
        let permit = Arc::clone(&self.semaphore).acquire_owned().await?;
        Ok(ResizablePermit::new(permit, self))
    }

    /// Takes a permit if one is free.
    pub fn try_take(self: &Arc<Self>) -> Result<ResizablePermit, TryAcquireError> {
        let permit = Arc::clone(&self.semaphore).try_acquire_owned()?;
        Ok(ResizablePermit::new(permit, Arc::clone(self)))
    }

    /// Gives out no more permits.
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Changes the number of permits. If more are out than there should be, the surplus disappears as it comes back.
    pub fn resize(&self, size: usize) {
        // The lock is held to the end: two changes at the same time would both count from the old size.
        let mut now = self.size.lock();
        if let more @ 1.. = size.saturating_sub(*now) {
            // A permit that is owed and still out is let off first. It comes back as a usable one, so none is added for
            // it.
            let forgiven = self.pay(more);
            self.semaphore.add_permits(more - forgiven);
        }
        if let fewer @ 1.. = now.saturating_sub(size) {
            // Owed first: a permit that comes back meanwhile must not be given out again.
            self.owed.fetch_add(fewer, Ordering::AcqRel);
            let free = self.semaphore.forget_permits(fewer);
            // A permit that came back meanwhile has paid a part. The permits that were forgotten beyond the rest go
            // back.
            let paid = self.pay(free);
            self.semaphore.add_permits(free - paid);
        }
        *now = size;
    }

    /// Lowers what is owed, by this number at most. Returns by how many.
    fn pay(&self, at_most: usize) -> usize {
        let mut paid = 0;
        let lower = |owed: usize| {
            // A lost race runs this again, so that `paid` is the result of the last attempt.
            paid = owed.min(at_most);
            (paid > 0).then(|| owed - paid)
        };
        let lowered = self
            .owed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, lower);
        if lowered.is_ok() { paid } else { 0 }
    }
}

impl ResizablePermit {
    fn new(permit: OwnedSemaphorePermit, of: Arc<ResizableSemaphore>) -> Self {
        Self {
            permit: Some(permit),
            of,
        }
    }
}

impl Drop for ResizablePermit {
    fn drop(&mut self) {
        // If nothing is owed, the permit drops here and goes back to the semaphore.
        if let Some(permit) = self.permit.take()
            && self.of.pay(1) == 1
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn take_all(semaphore: &Arc<ResizableSemaphore>) -> Vec<ResizablePermit> {
        std::iter::from_fn(|| semaphore.try_take().ok()).collect()
    }

    #[test]
    fn a_larger_size_counts_at_once_and_a_smaller_one_as_permits_come_back() {
        let semaphore = ResizableSemaphore::new(3);
        let mut out = take_all(&semaphore);
        assert_eq!(out.len(), 3);
        semaphore.resize(1);
        out.pop();
        assert!(semaphore.try_take().is_err(), "two are out, one may be");
        out.pop();
        assert!(semaphore.try_take().is_err(), "one is out, one may be");
        out.pop();
        assert_eq!(take_all(&semaphore).len(), 1);
        semaphore.resize(4);
        assert_eq!(take_all(&semaphore).len(), 4);
    }

    #[test]
    fn what_is_owed_is_forgiven_when_it_grows_again() {
        let semaphore = ResizableSemaphore::new(4);
        let out = take_all(&semaphore);
        semaphore.resize(0);
        semaphore.resize(3);
        semaphore.resize(5);
        let more = take_all(&semaphore);
        assert_eq!(more.len(), 1, "four are out, five may be");
        drop((out, more));
        assert_eq!(take_all(&semaphore).len(), 5);
    }

    #[test]
    fn free_permits_disappear_first() {
        let semaphore = ResizableSemaphore::new(4);
        let one = semaphore.try_take().unwrap();
        semaphore.resize(2);
        assert_eq!(take_all(&semaphore).len(), 1);
        drop(one);
        assert_eq!(take_all(&semaphore).len(), 2);
    }

    #[test]
    fn a_waiter_gets_a_permit_that_is_new() {
        let semaphore = ResizableSemaphore::new(0);
        let mut waiting = Box::pin(Arc::clone(&semaphore).take());
        assert!(waiting.as_mut().now_or_never().is_none());
        semaphore.resize(1);
        assert!(waiting.now_or_never().is_some_and(|permit| permit.is_ok()));
    }
}
