//! Keeps a value for each caller for a while. A read goes on when its caller leaves, so that a slow server is
//! read all the same.

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

/// A change that the server does not tell of is noticed after this time.
const FRESH: Duration = Duration::from_mins(1);

/// The number of callers that are remembered. Beyond it, all are forgotten.
const CALLERS_MAX: usize = 1024;

/// The outcome of the read, once it is there.
type CacheReading<T> = watch::Receiver<Option<Result<Arc<T>, DiscoverError>>>;

/// The value of each caller, and since when it is kept.
type Readings<T> = HashMap<[u8; 16], (Instant, CacheReading<T>)>;

pub(super) struct Cache<T> {
    by_caller: Mutex<Readings<T>>,
}

impl<T: Send + Sync + 'static> Cache<T> {
    /// The caller's value. One of all callers that ask at the same time reads it, on `services`. A value that
    /// could not be read is read again by the next caller.
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
                        // The value was forgotten, and no caller waits for it.
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
