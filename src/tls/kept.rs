//! A value that is made from files, which can be read anew while the value is in use. A connection keeps the
//! value that it began with, and a new connection takes the current value.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::error::TlsError;
use crate::base::lock::Mutex;

/// The shortest time between two readings of the files because of failures.
const PAUSE: Duration = Duration::from_secs(1);

/// The current value, and the function that reads the next value.
pub struct Kept<T> {
    read: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    current: watch::Sender<Arc<T>>,
    /// When the files were last read because of a failure.
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

    /// Reads the files anew. If a file is wrong, the current value stays. If the future is dropped, the files
    /// may still be read.
    pub async fn reload(self: &Arc<Self>) -> Result<(), TlsError> {
        let this = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            this.replace(this.read()?);
            Ok(())
        });
        // The job is lost only if the runtime shuts down.
        read.await.unwrap_or(Ok(()))
    }

    /// Reads the files, and changes nothing. It waits for the disk.
    pub fn read(&self) -> Result<Arc<T>, TlsError> {
        (self.read)().map(Arc::new)
    }

    /// Sets the value that new connections take from now on.
    pub fn replace(&self, next: Arc<T>) {
        self.current.send_replace(next);
    }

    /// Reads the files anew because a handshake failed, at most once a second.
    pub async fn reload_after_failure(self: &Arc<Self>) {
        if !self.may_reload() {
            return;
        }
        if let Err(error) = self.reload().await {
            tracing::warn!(%error, "a handshake failed, and the TLS files cannot be used; the old files stay in use");
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
