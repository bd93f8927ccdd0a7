//! Cuts clients that do not read: a connection whose socket takes nothing for a while, and an HTTP/2 stream whose
//! window stays closed although its connection goes on.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;

use crate::sharing::room::BufferBudget;

/// The time that a client may read nothing while something waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time that a client may read nothing while too much waits for all clients.
const PATIENCE_WHEN_SHORT: Duration = Duration::from_secs(2);

/// The pause between two checks of a client's patience.
const LOOK: Duration = Duration::from_secs(1);

/// Since when the client has taken nothing.
#[derive(Debug)]
struct Stuck {
    room: Arc<BufferBudget>,
    since: Option<Instant>,
    look: Option<Pin<Box<Sleep>>>,
}

impl Stuck {
    fn new(room: Arc<BufferBudget>) -> Self {
        Self {
            room,
            since: None,
            look: None,
        }
    }

    fn moved(&mut self) {
        self.since = None;
    }

    /// Ready when the client has read nothing for too long.
    fn poll_over(&mut self, since: Option<Instant>, context: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let since = *self.since.insert(since.or(self.since).unwrap_or(now));
        let look = self
            .look
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
        // A timer that has fired has no waker any more, so it is polled again after `reset`.
        while look.as_mut().poll(context).is_ready() {
            // Looked up each time, because memory may become short while the client is stuck.
            let patience = if self.room.is_short() {
                PATIENCE_WHEN_SHORT
            } else {
                PATIENCE
            };
            if now.saturating_duration_since(since) >= patience {
                return Poll::Ready(());
            }
            look.as_mut().reset(now + LOOK);
        }
        Poll::Pending
    }
}

/// A connection's socket.
#[derive(Debug)]
pub(super) struct Patient<S> {
    socket: S,
    stuck: Stuck,
}

impl<S> Patient<S> {
    pub(super) fn new(socket: S, room: Arc<BufferBudget>) -> Self {
        Self {
            socket,
            stuck: Stuck::new(room),
        }
    }

    fn watched<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stuck.moved();
            return polled;
        }
        let over = self.stuck.poll_over(None, context);
        over.map(|()| Err(io::Error::from(io::ErrorKind::TimedOut)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.watched(polled, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write_vectored(context, bytes);
        this.watched(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flushing a TCP socket does nothing, so only writes can be stuck.
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

tokio::task_local! {
    /// Since when the stream of this task has a piece that the connection has not sent yet.
    static GIVEN: Cell<Option<Instant>>;
}

/// Notes that the connection has a piece of a body. Only HTTP/2 streams count.
pub(super) fn given() {
    // Over HTTP/1.1 there is no such value: there the socket itself is watched.
    let _ = GIVEN.try_with(|since| since.set(Some(Instant::now())));
}

/// Notes that the connection asks for the next piece, and so has sent the one before.
pub(super) fn taken() {
    let _ = GIVEN.try_with(|since| since.set(None));
}

/// Runs the streams of an HTTP/2 connection, each in a task of its own.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    room: Arc<BufferBudget>,
    tasks: TaskTracker,
}

impl Streams {
    pub(super) fn new(room: Arc<BufferBudget>, tasks: TaskTracker) -> Self {
        Self { room, tasks }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let mut stuck = Stuck::new(Arc::clone(&self.room));
        // The body of the stream is polled in this job, so `given` and `taken` reach the value of their own stream.
        self.tasks.spawn(GIVEN.scope(Cell::new(None), async move {
            let mut stream = Box::pin(stream);
            // Dropping the stream resets it.
            std::future::poll_fn(move |context| {
                if stream.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                // The connection has sent every piece, so a silent stream is no matter of a slow client.
                let Some(since) = GIVEN.with(Cell::get) else {
                    stuck.moved();
                    return Poll::Pending;
                };
                stuck.poll_over(Some(since), context)
            })
            .await;
        }));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::sharing::room::SMALL;

    fn since(then: Instant) -> Duration {
        Instant::now().saturating_duration_since(then)
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_for_long_is_cut_and_who_reads_slowly_is_not() {
        let room = BufferBudget::new(4 * SMALL);
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut ours = Patient::new(ours, Arc::clone(&room));
        let began = Instant::now();
        let writing = async {
            let written = ours.write_all(&[7; 4096]).await;
            (written.unwrap_err().kind(), since(began))
        };
        let reading = async {
            for _ in 0..2 {
                tokio::time::sleep(PATIENCE / 2).await;
                theirs.read_exact(&mut [0; 1024]).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let (kind, took) = tokio::select! {
            cut = writing => cut,
            () = reading => unreachable!("it goes on for ever"),
        };
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert!(
            took >= PATIENCE * 2 && took < PATIENCE * 2 + LOOK * 2,
            "{took:?}"
        );

        // The wait is shorter while other clients need the room.
        let _taken = room.count(4 * SMALL).unwrap();
        let (ours, _theirs) = tokio::io::duplex(1024);
        let began = Instant::now();
        let mut ours = Patient::new(ours, room);
        ours.write_all(&[7; 4096]).await.unwrap_err();
        assert!(since(began) < PATIENCE_WHEN_SHORT + LOOK * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_piece_is_not_taken_is_dropped() {
        let streams = Streams::new(BufferBudget::new(4 * SMALL), TaskTracker::new());
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        let began = Instant::now();
        streams.execute(async move {
            let _alive = alive;
            // The first stream is read in time, the second waits for its client to send more, and the third is never
            // read.
            given();
            tokio::time::sleep(PATIENCE / 2).await;
            taken();
            tokio::time::sleep(PATIENCE * 3).await;
            given();
            std::future::pending::<()>().await;
        });
        ended.await.unwrap_err();
        let took = since(began);
        let lifetimes = PATIENCE / 2 + PATIENCE * 3;
        assert!(took >= lifetimes + PATIENCE, "{took:?}");
        assert!(took < lifetimes + PATIENCE + LOOK * 2, "{took:?}");
    }
}
