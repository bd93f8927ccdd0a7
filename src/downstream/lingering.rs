//! The end of a connection whose client may still be sending a body that was refused.
//!
//! A socket that is closed with unread bytes resets the connection, and a reset takes the answer away from a client that has not
//! read it yet (RFC 9112, section 9.6). So raincheck stops writing, and reads on for a while without keeping anything.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The time that a client may go on sending after its refusal. A body of the largest size arrives in this time
/// over 10 Mbit/s.
const LINGER: Duration = Duration::from_secs(5);

/// Bytes that are read, and dropped, at once.
const DISCARDED: usize = 8 * 1024;

/// `true` if the last request of a connection had a body that was not read. The service sets it, the socket reads it.
#[derive(Debug, Clone, Default)]
pub(super) struct UnreadBody(Arc<AtomicBool>);

impl UnreadBody {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection's socket.
#[derive(Debug)]
pub(super) struct Lingering<S> {
    socket: S,
    unread_body: UnreadBody,
    /// Set when nothing more is written.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(super) fn new(socket: S, unread_body: UnreadBody) -> Self {
        Self {
            socket,
            unread_body,
            until: None,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lingering<S> {
    /// Ready at the end of what the client sends, or when it had its time.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = self
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if until.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut space = [0; DISCARDED];
        // The runtime's budget makes reads pending at times, so a client that never pauses does not hold the thread.
        loop {
            let mut discarded = ReadBuf::new(&mut space);
            match Pin::new(&mut self.socket).poll_read(context, &mut discarded) {
                Poll::Ready(Ok(())) if !discarded.filled().is_empty() => {}
                // After an error or the end, no unread bytes can come that would make the close a reset.
                Poll::Ready(_ended) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The write side is shut down once. The connection polls again while the client's bytes are discarded.
        if this.until.is_none() {
            std::task::ready!(Pin::new(&mut this.socket).poll_shutdown(context))?;
            if !this.unread_body.is_set() {
                return Poll::Ready(Ok(()));
            }
        }
        this.poll_discard(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::time::Instant;

    use super::*;

    fn since(then: Instant) -> Duration {
        Instant::now().saturating_duration_since(then)
    }

    fn refused() -> (Lingering<DuplexStream>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1024);
        let unread_body = UnreadBody::default();
        unread_body.set();
        (Lingering::new(ours, unread_body), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_still_sends_is_heard_to_its_end() {
        let (mut ours, mut theirs) = refused();
        let client = async {
            theirs.write_all(&vec![7; 100_000]).await.unwrap();
            tokio::time::sleep(LINGER / 2).await;
            theirs.write_all(b"the last").await.unwrap();
            let mut answer = String::new();
            theirs.read_to_string(&mut answer).await.unwrap();
            drop(theirs);
            answer
        };
        let server = async {
            ours.write_all(b"too large").await.unwrap();
            let began = Instant::now();
            ours.shutdown().await.unwrap();
            since(began)
        };
        let (answer, lingered) = tokio::join!(client, server);
        assert_eq!(answer, "too large");
        assert!(lingered < LINGER, "{lingered:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_stops_is_cut() {
        let (mut ours, mut theirs) = refused();
        let client = async {
            let mut sent = 0;
            while theirs.write_all(&[7; 512]).await.is_ok() {
                sent += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            sent
        };
        let server = async {
            let began = Instant::now();
            ours.shutdown().await.unwrap();
            drop(ours);
            since(began)
        };
        let (sent, lingered) = tokio::join!(client, server);
        assert_eq!(lingered, LINGER);
        assert!(sent >= 50, "{sent}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_unread_body_ends_at_once() {
        let (ours, _theirs) = tokio::io::duplex(1024);
        let mut ours = Lingering::new(ours, UnreadBody::default());
        let began = Instant::now();
        ours.shutdown().await.unwrap();
        assert_eq!(since(began), Duration::ZERO);
    }
}
