//! A value for each caller, read once and kept for a while. Reading goes on when the caller leaves, so that a
//! server that is slow to answer is read all the same.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::lock::Mutex;
use crate::upstream::discovery::discovered::DiscoverError;
use crate::upstream::failures::UNREACHABLE;

/// A change without a notification is noticed after this.
const FRESH: Duration = Duration::from_mins(1);

/// Callers remembered; at more, all are forgotten and read again.
const CALLERS_MAX: usize = 1024;

/// Once it is over, what came of it.
type CacheReading<T> = watch::Receiver<Option<Result<Arc<T>, DiscoverError>>>;

/// Of each caller, and since when.
type Readings<T> = HashMap<[u8; 16], (Instant, CacheReading<T>)>;

pub(super) struct Cache<T> {
    by_caller: Mutex<Readings<T>>,
}

impl<T: Send + Sync + 'static> Cache<T> {
    /// What is known of the caller, read by one of all who ask at the same time, on `services`. What
    /// could not be read is read anew by the next who asks.
    pub(super) async fn get(
        &self,
        caller: [u8; 16],
        services: &TaskTracker,
        read: impl Future<Output = Result<T, DiscoverError>> + Send + 'static,
    ) -> Result<Arc<T>, DiscoverError> {
        let mut reading = self.reading(caller, services, read);
        let read = reading.wait_for(Option::is_some).await;
        let read = read.ok().and_then(|read| read.clone());
        read.unwrap_or(Err(DiscoverError::Failed(UNREACHABLE)))
    }

    fn reading(
        &self,
        caller: [u8; 16],
        services: &TaskTracker,
        read: impl Future<Output = Result<T, DiscoverError>> + Send + 'static,
    ) -> CacheReading<T> {
        let now = Instant::now();
        let mut by_caller = self.by_caller.lock();
        if by_caller.len() >= CALLERS_MAX && !by_caller.contains_key(&caller) {
            by_caller.clear();
        }
        let fresh = |since: Instant| now.saturating_duration_since(since) < FRESH;
        match by_caller.get(&caller) {
            Some((since, reading)) if fresh(*since) && !has_failed(reading) => reading.clone(),
            _ => {
                let (says, reading) = watch::channel(None);
                services.spawn(async move {
                    tokio::select! {
                        // It was forgotten, and no caller waits for it.
                        () = says.closed() => {}
                        read = read => {
                            let _ = says.send(Some(read.map(Arc::new)));
                        }
                    }
                });
                by_caller.insert(caller, (now, reading.clone()));
                reading
            }
        }
    }
}

fn has_failed<T>(reading: &CacheReading<T>) -> bool {
    let said = reading.borrow();
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
            by_caller: Mutex::default(),
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
        let read = || cache.get([0; 16], &services, std::future::pending());
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
}
