//! A connection that remembers everything that ever arrived on it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What has arrived so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrived(Arc<Mutex<Vec<u8>>>);

impl Arrived {
    /// Every task id in the traffic, of all clients.
    pub(crate) fn task_ids(&self) -> Vec<String> {
        task_ids(&self.0.lock().unwrap())
    }
}

/// The ids of the tasks that these bytes announce.
pub(crate) fn task_ids(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let after = text.split(r#""taskId":""#).skip(1);
    after
        .filter_map(|rest| rest.split_once('"'))
        .map(|(id, _)| id.to_owned())
        .collect()
}

#[derive(Debug)]
pub(crate) struct Tap {
    stream: TcpStream,
    arrived: Arrived,
}

impl Tap {
    pub(crate) fn new(stream: TcpStream) -> (Self, Arrived) {
        let arrived = Arrived::default();
        (
            Self {
                stream,
                arrived: arrived.clone(),
            },
            arrived,
        )
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        let new = &buffer.filled()[before..];
        self.arrived.0.lock().unwrap().extend_from_slice(new);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
