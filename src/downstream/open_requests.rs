//! Counts the open requests of one connection, so that an idle connection can be closed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;

/// The number of open requests of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests(Arc<watch::Sender<usize>>);

/// One open request. Dropped, the request is over.
#[derive(Debug)]
pub(super) struct OneOpen(OpenRequests);

impl OpenRequests {
    pub(super) fn begin(&self) -> OneOpen {
        // `send` would fail and change nothing while nobody is subscribed.
        self.0.send_modify(|open| *open += 1);
        OneOpen(self.clone())
    }

    /// Resolves when the connection had no open request for this long.
    pub(super) async fn is_idle_for(&self, patience: Duration) {
        let mut open = self.0.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = open.wait_for(|open| *open == 0).await;
            let begun = open.wait_for(|open| *open > 0);
            if tokio::time::timeout(patience, begun).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for OneOpen {
    fn drop(&mut self) {
        self.0.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}

/// A response's body. The request is over when the body is dropped.
#[derive(Debug)]
pub(super) struct CountedBody<B> {
    body: B,
    _open: OneOpen,
}

impl<B> CountedBody<B> {
    pub(super) fn new(body: B, open: OneOpen) -> Self {
        Self { body, _open: open }
    }
}

impl<B: HttpBody + Unpin> HttpBody for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_while_nothing_is_open() {
        let (open, limit) = (OpenRequests::default(), Duration::from_secs(10));
        let began = Instant::now();
        open.is_idle_for(limit).await;
        assert_eq!(Instant::now() - began, limit);

        let one = open.begin();
        let waiting = tokio::time::timeout(limit * 100, open.is_idle_for(limit));
        assert!(waiting.await.is_err());
        let other = open.begin();
        drop(one);
        let waiting = tokio::time::timeout(limit * 100, open.is_idle_for(limit));
        assert!(waiting.await.is_err());
        drop(other);
        let began = Instant::now();
        open.is_idle_for(limit).await;
        assert_eq!(Instant::now() - began, limit);
    }
}
