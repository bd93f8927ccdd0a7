//! Something a caller, read once and kept for a while.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

/// A change that nobody told us of is noticed after this.
const FRESH: Duration = Duration::from_mins(1);

/// Callers remembered; at more, all are forgotten and read again.
const CALLERS_MAX: usize = 1024;

type Entry<T> = (Instant, Arc<OnceCell<Arc<T>>>);

pub(super) struct Cache<T> {
    by_caller: Mutex<HashMap<[u8; 16], Entry<T>>>,
}

impl<T> Cache<T> {
    /// What is known of the caller, read by one of all who ask at the same time.
    pub(super) async fn get<E>(
        &self,
        caller: [u8; 16],
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        let cell = self.cell(caller);
        cell.get_or_try_init(|| async { read.await.map(Arc::new) })
            .await
            .cloned()
    }

    fn cell(&self, caller: [u8; 16]) -> Arc<OnceCell<Arc<T>>> {
        let now = Instant::now();
        let mut by_caller = self
            .by_caller
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if by_caller.len() >= CALLERS_MAX && !by_caller.contains_key(&caller) {
            by_caller.clear();
        }
        let fresh = |since: Instant| now.saturating_duration_since(since) < FRESH;
        match by_caller.get(&caller) {
            Some((since, cell)) if fresh(*since) => Arc::clone(cell),
            _ => {
                let cell = Arc::default();
                by_caller.insert(caller, (now, Arc::clone(&cell)));
                cell
            }
        }
    }

    pub(super) fn clear(&self) {
        self.by_caller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
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
