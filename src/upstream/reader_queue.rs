//! The queue between a task that reads the server's messages for many requests and the reader of one of them. When
//! the queue is full the task reads no more until the reader has read on, so that a burst of messages loses none. A
//! reader that reads nothing for long is not waited for: it misses messages, and the other requests go on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Resolves when there is room again, when the reader is gone, or when it has read nothing for long.
pub(super) type Full = BoxFuture<'static, ()>;

/// The time that a reader that reads nothing delays a stream of its own client: longer than a connection to a
/// client that reads nothing is kept.
pub(super) const OWN_PATIENCE: Duration = Duration::from_secs(40);

/// The time that a reader that reads nothing delays the other requests that share its line.
pub(super) const SHARED_PATIENCE: Duration = Duration::from_secs(1);

/// The writing side of the queue.
pub(super) struct ReaderQueue<T> {
    sender: mpsc::Sender<T>,
    patience: Duration,
    /// The reader was waited for in vain, and has not read half of the queue since.
    is_slow: Arc<AtomicBool>,
}

impl<T: Send + 'static> ReaderQueue<T> {
    pub(super) fn new(sender: mpsc::Sender<T>, patience: Duration) -> Self {
        Self {
            sender,
            patience,
            is_slow: Arc::default(),
        }
    }

    /// Returns `false` if the reader is gone, or slow.
    pub(super) fn put(&self, message: T) -> bool {
        self.sender.try_send(message).is_ok()
    }

    /// Returns `true` if the reader is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns the wait for room. `None`: there is room, or the reader is not waited for.
    pub(super) fn full(&self) -> Option<Full> {
        let room = self.sender.capacity();
        if room >= self.sender.max_capacity() / 2 {
            self.is_slow.store(false, Ordering::Relaxed);
        }
        if room > 0 || self.is_closed() || self.is_slow.load(Ordering::Relaxed) {
            return None;
        }
        let (sender, is_slow, patience) = (
            self.sender.clone(),
            Arc::clone(&self.is_slow),
            self.patience,
        );
        let waiting = async move {
            // Only the wait matters: the reserved place goes back at once, and the next `put` takes it.
            if timeout(patience, sender.reserve()).await.is_err() {
                is_slow.store(true, Ordering::Relaxed);
                tracing::debug!("a slow reader misses messages from here on");
            }
        };
        Some(waiting.boxed())
    }
}

impl<T> fmt::Debug for ReaderQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReaderQueue")
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_waited_for_until_it_reads_nothing_for_long() {
        let (sender, mut receiver) = mpsc::channel(4);
        let queue = ReaderQueue::new(sender, SHARED_PATIENCE);
        for number in 0..3 {
            assert!(queue.put(number) && queue.full().is_none());
        }
        assert!(queue.put(3));
        // It reads on: nothing is lost.
        let full = queue.full().unwrap();
        let ((), read) = tokio::join!(full, receiver.recv());
        assert!(read == Some(0) && queue.put(4));
        // It does not: it is waited for once.
        let began = Instant::now();
        queue.full().unwrap().await;
        assert_eq!(Instant::now() - began, SHARED_PATIENCE);
        assert!(!queue.put(5) && queue.full().is_none());
        receiver.recv().await;
        assert!(queue.put(6) && queue.full().is_none(), "it is still slow");
        receiver.recv().await;
        receiver.recv().await;
        assert!(queue.full().is_none() && queue.put(7) && queue.put(8));
        assert!(queue.full().is_some());
        drop(receiver);
        assert!(queue.full().is_none() && !queue.put(9));
    }
}
