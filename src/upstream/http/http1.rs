//! The idle HTTP/1.1 connections to the wrapped server: a stack for each thread, so that taking and giving back cost the same
//! however many calls are open, and the core that serves a client also serves the connection to the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::net::connection_threads::PerThread;
use crate::upstream::http::request_body::RequestBody;

/// Common servers close an idle connection after 5 s, so raincheck gives it up before.
pub(super) const IDLE: Duration = Duration::from_secs(4);

/// The number of idle connections that each thread keeps. Others are closed after use.
const IDLE_MAX: usize = 256;

/// The number of connections of other threads that a thread takes in a row. Each call over such a connection wakes its thread twice, so
/// the last of them is closed after its use, and the thread makes one of its own.
const OF_OTHERS_MAX: u32 = 16;

/// The pools of all threads.
#[derive(Debug, Default)]
pub(super) struct ConnectionPools(PerThread<ConnectionPool>);

/// A connection in use, and the pool that it goes back to: that of the thread which reads and writes it.
#[derive(Debug)]
pub(super) struct PooledConnection {
    pub(super) sender: SendRequest<RequestBody>,
    /// `None`: it is closed after this use.
    pool: Option<Arc<ConnectionPool>>,
}

impl ConnectionPools {
    /// An idle connection, and the time. One of this thread comes first. A connection of another thread comes before a new one,
    /// because some servers serve one connection at a time.
    pub(super) async fn take(&self) -> Option<(PooledConnection, Instant)> {
        let here = self.0.here();
        if let Some((sender, now)) = here.take().await {
            here.of_others.store(0, Ordering::Relaxed);
            return Some((PooledConnection::of(here, sender), now));
        }
        let mut pools = self.0.all();
        let ((sender, now), pool) = pools.find_map(|pool| Some((pool.take_ready()?, pool)))?;
        if here.of_others.fetch_add(1, Ordering::Relaxed) + 1 < OF_OTHERS_MAX {
            return Some((PooledConnection::of(pool, sender), now));
        }
        here.of_others.store(0, Ordering::Relaxed);
        Some((PooledConnection { sender, pool: None }, now))
    }

    /// A connection that this thread has made.
    pub(super) fn made(&self, sender: SendRequest<RequestBody>) -> PooledConnection {
        PooledConnection::of(self.0.here(), sender)
    }
}

impl PooledConnection {
    fn of(pool: &Arc<ConnectionPool>, sender: SendRequest<RequestBody>) -> Self {
        let pool = Some(Arc::clone(pool));
        Self { sender, pool }
    }

    pub(super) fn give_back(self) {
        if let Some(pool) = self.pool {
            pool.give_back(self.sender);
        }
    }
}

#[derive(Debug, Default)]
struct ConnectionPool {
    /// The idle connections, the newest last.
    idle: Mutex<VecDeque<(SendRequest<RequestBody>, Instant)>>,
    /// The number of connections of other threads that this thread has taken since it took one of its own.
    of_others: AtomicU32,
}

impl ConnectionPool {
    /// The connection that was used last, if it is ready now: its thread may be busy, and must not hold up another.
    fn take_ready(&self) -> Option<(SendRequest<RequestBody>, Instant)> {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        idle.pop_back_if(|(sender, since)| {
            sender.is_ready() && now.saturating_duration_since(*since) < IDLE
        })
        .map(|(sender, _)| (sender, now))
    }

    /// A connection that is ready, and the time. The one that was used last comes first.
    async fn take(&self) -> Option<(SendRequest<RequestBody>, Instant)> {
        loop {
            // The guard ends with this statement, because no lock is held across the wait below.
            let newest = self.idle.lock().pop_back();
            let (mut sender, since) = newest?;
            let now = Instant::now();
            if now.saturating_duration_since(since) >= IDLE {
                // All other connections are older.
                self.idle.lock().clear();
                return None;
            }
            if sender.is_ready() {
                return Some((sender, now));
            }
            // The driver of the connection has not yet seen the end of the last response.
            let ready = tokio::time::timeout(Duration::from_millis(50), sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                return Some((sender, Instant::now()));
            }
        }
    }

    fn give_back(&self, sender: SendRequest<RequestBody>) {
        if sender.is_closed() {
            return;
        }
        let now = Instant::now();
        let mut idle = self.idle.lock();
        // `take` uses the newest and may never reach the oldest, so those are closed here.
        while idle
            .front()
            .is_some_and(|(_, since)| now.saturating_duration_since(*since) >= IDLE)
        {
            idle.pop_front();
        }
        if idle.len() < IDLE_MAX {
            idle.push_back((sender, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::client::conn::http1::handshake;
    use hyper_util::rt::TokioIo;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::net::connection_threads::ConnectionThreads;

    async fn connected(to: &TcpListener, drivers: &TaskTracker) -> SendRequest<RequestBody> {
        let stream = TcpStream::connect(to.local_addr().unwrap()).await.unwrap();
        let (mut sender, driver) = handshake(TokioIo::new(stream)).await.unwrap();
        drivers.spawn(driver);
        sender.ready().await.unwrap();
        sender
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_comes_to_a_connection_of_its_own() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pools = Arc::new(ConnectionPools::default());
        let (threads, tracker) = (ConnectionThreads::start().unwrap(), TaskTracker::new());
        // As a probe leaves it, which no connection thread has made.
        let made = connected(&server, &tracker).await;
        pools.made(made).give_back();
        let stream = TcpStream::connect(server.local_addr().unwrap()).await;
        let drivers = tracker.clone();
        let (says, heard) = oneshot::channel();
        threads.spawn(&tracker, stream.unwrap(), |_| async move {
            let mut uses = 0;
            while let Some((connection, _)) = pools.take().await {
                connection.give_back();
                uses += 1;
            }
            let made = connected(&server, &drivers).await;
            pools.made(made).give_back();
            for _ in 0..2 * OF_OTHERS_MAX {
                pools.take().await.unwrap().0.give_back();
            }
            says.send(uses).unwrap();
        });
        assert_eq!(heard.await.unwrap(), OF_OTHERS_MAX);
    }
}
