//! The places for held polls of one connection, where many requests share the connection.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Half of the streams of an HTTP/2 connection stay free for other requests.
const PLACES: usize = 64;

/// In the extensions of the connection's requests.
#[derive(Debug, Clone)]
pub(in crate::downstream) struct ConnectionPolls(Arc<Semaphore>);

impl Default for ConnectionPolls {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

impl ConnectionPolls {
    /// `None`: as many polls wait as may.
    pub(in crate::downstream) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}
