//! Keeps a value for each caller for a while. A read that the server knows of goes on when its caller leaves, so that a
//! slow server is read all the same. A read that still waits for a session does not: a caller that has left must not take a
//! session from one that waits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::base::lock::Mutex;
use crate::upstream::discovery::discovered::DiscoverError;
use crate::upstream::failures::UNREACHABLE;

/// A change that the server does not tell of is noticed after this time.
const FRESH: Duration = Duration::from_mins(1);

/// The number of callers that are remembered. Beyond it, all are forgotten.
const CALLERS_MAX: usize = 1024;

/// The outcome of the read, once it is there.
type CacheReading<T> = watch::Receiver<Option<Result<Arc<T>, DiscoverError>>>;

/// A value, or the read that will give it.
struct CachedValue<T> {
    since: Instant,
    reading: CacheReading<T>,
    /// Each caller that waits for the value has a receiver of this.
    waiting: watch::Sender<()>,
}

type Readings<T> = HashMap<[u8; 16], CachedValue<T>>;

pub(super) struct Cache<T> {
    by_caller: Arc<Mutex<Readings<T>>>,
}

impl<T: Send + Sync + 'static> Cache<T> {
    /// The caller's value. One of all callers that ask at the same time reads it, on `services`. A value that
    /// could not be read is read again by the next caller. `has_begun` says whether the read goes on although no caller
    /// waits for it.
    pub(super) async fn get(
        &self,
        caller: [u8; 16],
        services: &TaskTracker,
        read: impl Future<Output = Result<T, DiscoverError>> + Send + 'static,
        has_begun: impl Fn() -> bool + Send + 'static,
    ) -> Result<Arc<T>, DiscoverError> {
        // `_waiting` lives until the outcome is there. A read that has not begun is given up once no receiver is left,
        // which must not happen while this caller waits.
        let (mut reading, _waiting) = self.reading(caller, services, read, has_begun);
        let read = reading.wait_for(Option::is_some).await;
        let read = read.ok().and_then(|read| read.clone());
        read.unwrap_or(Err(DiscoverError::Failed(UNREACHABLE)))
    }

    fn reading(
        &self,
        caller: [u8; 16],
        services: &TaskTracker,
        read: impl Future<Output = Result<T, DiscoverError>> + Send + 'static,
        has_begun: impl Fn() -> bool + Send + 'static,
    ) -> (CacheReading<T>, watch::Receiver<()>) {
        let now = Instant::now();
        let mut by_caller = self.by_caller.lock();
        if by_caller.len() >= CALLERS_MAX && !by_caller.contains_key(&caller) {
            by_caller.clear();
        }
        let fresh = |since: Instant| now.saturating_duration_since(since) < FRESH;
        if let Some(kept) = by_caller.get(&caller)
            && fresh(kept.since)
            && !has_failed(&kept.reading)
        {
            return (kept.reading.clone(), kept.waiting.subscribe());
        }
        let (says, reading) = watch::channel(None);
        let (waiting, first) = watch::channel(());
        let unwanted = unwanted(
            Arc::clone(&self.by_caller),
            caller,
            waiting.clone(),
            has_begun,
        );
        services.spawn(async move {
            tokio::select! {
                // The value was forgotten, and no caller waits for it.
                () = says.closed() => {}
                () = unwanted => {}
                read = read => {
                    let _ = says.send(Some(read.map(Arc::new)));
                }
            }
        });
        let kept = CachedValue {
            since: now,
            reading: reading.clone(),
            waiting,
        };
        by_caller.insert(caller, kept);
        (reading, first)
    }
}

/// Resolves when no caller waits for a read that has not begun. The next caller begins another.
async fn unwanted<T>(
    by_caller: Arc<Mutex<Readings<T>>>,
    caller: [u8; 16],
    waiting: watch::Sender<()>,
    has_begun: impl Fn() -> bool,
) {
    loop {
        waiting.closed().await;
        if has_begun() {
            return std::future::pending().await;
        }
        let mut by_caller = by_caller.lock();
        // Under the lock, no caller can begin to wait.
        if waiting.receiver_count() == 0 {
            let kept = by_caller.get(&caller);
            // Another read may have taken the place meanwhile, and its callers still wait.
            if kept.is_some_and(|kept| kept.waiting.same_channel(&waiting)) {
                by_caller.remove(&caller);
            }
            return;
        }
    }
}

fn has_failed<T>(reading: &CacheReading<T>) -> bool {
    let said = reading.borrow();
    // A read that ended without an outcome has dropped its sender, and counts as failed, too.
    said.as_ref()
        .map_or_else(|| reading.has_changed().is_err(), Result::is_err)
}

impl<T> Cache<T> {
    pub(super) fn clear(&self) {
        self.by_caller.lock().clear();
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            by_caller: Arc::default(),
        }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_is_forgotten_and_waited_for_by_nobody_is_not_read_on() {
        let (cache, services) = (Cache::<u8>::default(), TaskTracker::new());
        let read = || cache.get([0; 16], &services, std::future::pending(), || true);
        assert!(read().now_or_never().is_none());
        tokio::task::yield_now().await;
        assert_eq!(services.len(), 1, "nobody waits, and it goes on");
        assert!(read().now_or_never().is_none());
        assert_eq!(services.len(), 1, "one reads for all");

        cache.clear();
        services.close();
        let over = timeout(Duration::from_secs(5), services.wait()).await;
        over.expect("in time");
    }

    #[tokio::test]
    async fn what_has_not_begun_ends_when_the_last_caller_leaves() {
        let (cache, services) = (Cache::<u8>::default(), TaskTracker::new());
        let read = || cache.get([0; 16], &services, std::future::pending(), || false);
        let (mut one, mut two) = (Box::pin(read()), Box::pin(read()));
        assert!(one.as_mut().now_or_never().is_none());
        assert!(two.as_mut().now_or_never().is_none());
        drop(one);
        tokio::task::yield_now().await;
        assert_eq!(services.len(), 1, "one still waits");
        drop(two);
        services.close();
        let over = timeout(Duration::from_secs(5), services.wait()).await;
        over.expect("in time");
        let again = cache.get([0; 16], &services, async { Ok(7) }, || false);
        assert_eq!(again.await.ok().as_deref(), Some(&7));
    }
}
