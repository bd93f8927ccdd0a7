//! What is made from files and read anew while it is in use: connections keep what they began
//! with, new ones take what is current.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::error::TlsError;
use crate::lock::Mutex;

/// At most so often are files read because of a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The current one, and how to read the next.
pub struct Kept<T> {
    read: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    current: watch::Sender<Arc<T>>,
    /// When a failure last had the files read.
    failed: Mutex<Option<Instant>>,
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// Reads the files for the first time.
    pub(super) fn new(
        read: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, TlsError> {
        let current = read()?;
        Ok(Arc::new(Self {
            read: Box::new(read),
            current: watch::Sender::new(Arc::new(current)),
            failed: Mutex::default(),
        }))
    }

    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.borrow())
    }

    /// Reads the files anew; what is wrong with them leaves all as it was. Cancelled, it may still
    /// happen.
    pub async fn reload(self: &Arc<Self>) -> Result<(), TlsError> {
        let this = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let next = Arc::new((this.read)()?);
            this.current.send_replace(next);
            Ok(())
        });
        // Only a runtime at its end does not come to it.
        read.await.unwrap_or(Ok(()))
    }

    /// The same because a handshake failed, at most once a second.
    pub async fn reload_after_failure(self: &Arc<Self>) {
        if !self.may_reload() {
            return;
        }
        if let Err(error) = self.reload().await {
            tracing::warn!(%error, "a handshake failed, and its files cannot be used; the old ones stay");
        }
    }

    fn may_reload(&self) -> bool {
        let now = Instant::now();
        let mut failed = self.failed.lock();
        let too_soon = failed.is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
        if !too_soon {
            *failed = Some(now);
        }
        !too_soon
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}
