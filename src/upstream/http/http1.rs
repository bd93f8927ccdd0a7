//! The idle HTTP/1.1 connections to the wrapped server: a stack for each thread, so that taking and giving back cost the same
//! however many calls are open, and the core that serves a client also serves the connection to the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use crate::connection_threads::PerThread;
use crate::lock::Mutex;
use crate::upstream::http::request_body::RequestBody;

/// Common servers close an idle connection after 5 s, so raincheck gives it up before.
pub(super) const IDLE: Duration = Duration::from_secs(4);

/// How many idle connections each thread keeps. Others are closed after use.
const IDLE_MAX: usize = 256;

/// The pools of all threads.
#[derive(Debug, Default)]
pub(super) struct ConnectionPools(PerThread<ConnectionPool>);

/// A connection in use, and the pool that it goes back to: that of the thread which reads and writes it.
#[derive(Debug)]
pub(super) struct PooledConnection {
    pub(super) sender: SendRequest<RequestBody>,
    pool: Arc<ConnectionPool>,
}

impl ConnectionPools {
    /// An idle connection. One of this thread comes first. A connection of another thread comes before a new one,
    /// because some servers serve one connection at a time.
    pub(super) async fn take(&self) -> Option<PooledConnection> {
        let here = self.0.here();
        if let Some(sender) = here.take().await {
            let pool = Arc::clone(here);
            return Some(PooledConnection { sender, pool });
        }
        let mut pools = self.0.all();
        pools.find_map(|pool| {
            let (sender, pool) = (pool.take_ready()?, Arc::clone(pool));
            Some(PooledConnection { sender, pool })
        })
    }

    /// A connection that this thread has made.
    pub(super) fn made(&self, sender: SendRequest<RequestBody>) -> PooledConnection {
        let pool = Arc::clone(self.0.here());
        PooledConnection { sender, pool }
    }
}

impl PooledConnection {
    pub(super) fn give_back(self) {
        self.pool.give_back(self.sender);
    }
}

#[derive(Debug, Default)]
struct ConnectionPool {
    /// The idle connections, the newest last.
    idle: Mutex<VecDeque<(SendRequest<RequestBody>, Instant)>>,
}

impl ConnectionPool {
    /// The connection that was used last, if it is ready now: its thread may be busy, and must not hold up another.
    fn take_ready(&self) -> Option<SendRequest<RequestBody>> {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        idle.pop_back_if(|(sender, since)| {
            sender.is_ready() && now.saturating_duration_since(*since) < IDLE
        })
        .map(|(sender, _)| sender)
    }

    /// A connection that is ready. The one that was used last comes first.
    async fn take(&self) -> Option<SendRequest<RequestBody>> {
        loop {
            let newest = self.idle.lock().pop_back();
            let (mut sender, since) = newest?;
            if Instant::now().saturating_duration_since(since) >= IDLE {
                // All other connections are older.
                self.idle.lock().clear();
                return None;
            }
            if sender.is_ready() {
                return Some(sender);
            }
            // The driver of the connection has not yet seen the end of the last response.
            let ready = tokio::time::timeout(Duration::from_millis(50), sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                return Some(sender);
            }
        }
    }

    fn give_back(&self, sender: SendRequest<RequestBody>) {
        if sender.is_closed() {
            return;
        }
        let now = Instant::now();
        let mut idle = self.idle.lock();
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
