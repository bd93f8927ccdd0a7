//! Whether the first byte of a server shows that it speaks no HTTP/2. The error of a connection does not tell: such a
//! server often closes it at once, and then h2 may say only that.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose first byte is looked at.
pub(in crate::upstream::http) struct FirstByte<T> {
    stream: T,
    is_read: bool,
    is_other: Arc<AtomicBool>,
}

impl<T> FirstByte<T> {
    /// The flag says that the first byte was none of HTTP/2.
    pub(super) fn new(stream: T) -> (Self, Arc<AtomicBool>) {
        let is_other = Arc::<AtomicBool>::default();
        let this = Self {
            stream,
            is_read: false,
            is_other: Arc::clone(&is_other),
        };
        (this, is_other)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FirstByte<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if !this.is_read
            && let Some(first) = buffer.filled().get(before)
        {
            this.is_read = true;
            // The first frame has at most 16 KiB, so the highest byte of its length is 0.
            this.is_other.store(*first != 0, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FirstByte<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
