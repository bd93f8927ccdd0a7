//! The HTTP/2 connections to the wrapped server, and which of them takes the next request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::upstream::http::http1::IDLE;
use crate::upstream::single_flight::SingleFlight;

/// The most requests on one connection, however many the server allows: the end of a connection ends them all, and
/// all of them wait for one socket. Common servers allow 100 to 250.
pub(super) const STREAMS_MAX: u16 = 128;

/// The most requests in a connection's life. h2 counts some oddities of the server for as long as a connection lives, and
/// ends it after so many: a new connection begins from zero.
pub(super) const REQUESTS_MAX: usize = 1000;

/// The connections. A request goes over the connection that was listed last and has room, so that the others become
/// idle and end. Taking and giving back cost the same however many calls are open.
#[derive(Debug, Default)]
pub(in crate::upstream::http) struct Connections {
    state: Mutex<PooledConnections>,
    /// One connection is made at a time, and all requests without a place wait for it.
    pub(super) connecting: SingleFlight,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct PooledConnections {
    next_id: u64,
    all: HashMap<u64, PooledConnection>,
    /// Connections that take further requests.
    with_room: Vec<u64>,
}

#[derive(Debug)]
struct PooledConnection {
    sender: SendRequest<Bytes>,
    /// Requests whose answer is not at its end.
    streams: usize,
    /// Requests that it ever took.
    requests: usize,
    is_listed: bool,
    used: Instant,
}

/// Why a connection takes no request.
enum NoStream {
    /// Until an answer comes to its end.
    Full,
    /// It was closed, is about to be closed, or was idle for too long.
    Ended,
}

/// The use of a connection.
pub(super) enum ConnectionUse {
    /// Requests wait for the ends of their answers.
    Open,
    /// Nothing, and it is kept until then.
    Idle(Instant),
    /// It takes no further requests.
    Retired,
}

/// A place for one request on a connection, until it is dropped.
#[derive(Debug)]
pub(in crate::upstream::http) struct StreamPlace {
    connections: Arc<Connections>,
    pub(super) id: u64,
}

impl Connections {
    /// A place on a connection that lives. `None`: all are full, or there is none.
    pub(super) fn take(self: &Arc<Self>) -> Option<(SendRequest<Bytes>, StreamPlace)> {
        let now = Instant::now();
        let mut state = self.state.lock();
        loop {
            let id = *state.with_room.last()?;
            let taken = match state.all.get_mut(&id) {
                Some(connection) => connection.take(now),
                None => Err(NoStream::Ended),
            };
            match taken {
                Ok(sender) => {
                    // A worn connection takes no request after this one, and is closed after its open answers.
                    if state.all.get(&id).is_some_and(PooledConnection::is_worn) {
                        state.remove(id);
                    }
                    return Some((sender, self.place(id)));
                }
                Err(NoStream::Full) => {
                    // It is listed again when one of its answers ends (`give_back`).
                    state.with_room.pop();
                }
                Err(NoStream::Ended) => state.remove(id),
            }
        }
    }

    /// Adds a connection, with a place for its first request.
    pub(super) fn add(
        self: &Arc<Self>,
        sender: SendRequest<Bytes>,
    ) -> (SendRequest<Bytes>, StreamPlace) {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        let connection = PooledConnection {
            sender: sender.clone(),
            streams: 1,
            requests: 1,
            is_listed: true,
            used: Instant::now(),
        };
        state.all.insert(id, connection);
        state.with_room.push(id);
        drop(state);
        (sender, self.place(id))
    }

    /// Returns the number of attempts to connect that have failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    pub(super) fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Release);
    }

    fn place(self: &Arc<Self>, id: u64) -> StreamPlace {
        StreamPlace {
            connections: Arc::clone(self),
            id,
        }
    }

    fn give_back(&self, id: u64) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(connection) = state.all.get_mut(&id) else {
            // The connection was retired while the request ran.
            return;
        };
        connection.streams -= 1;
        connection.used = now;
        if !connection.is_listed && connection.has_room() {
            connection.is_listed = true;
            state.with_room.push(id);
        }
    }

    /// Gives the connection no further requests. Those on it go on, and it is closed after them.
    pub(super) fn retire(&self, id: u64) {
        self.state.lock().remove(id);
    }

    /// What a connection is used for. One that was idle for too long is retired.
    pub(super) fn usage(&self, id: u64) -> ConnectionUse {
        let now = Instant::now();
        let mut state = self.state.lock();
        match state.all.get(&id) {
            Some(it) if it.streams > 0 => ConnectionUse::Open,
            Some(it) if it.is_fresh(now) => ConnectionUse::Idle(it.used + IDLE),
            Some(_) | None => {
                state.remove(id);
                ConnectionUse::Retired
            }
        }
    }
}

impl PooledConnections {
    fn remove(&mut self, id: u64) {
        // This drops the sender of the table. h2 closes a connection without senders after its last stream.
        self.all.remove(&id);
        self.with_room.retain(|listed| *listed != id);
    }
}

impl PooledConnection {
    /// Takes a place. If there is none, the connection is no longer listed.
    fn take(&mut self, now: Instant) -> Result<SendRequest<Bytes>, NoStream> {
        // The sender of the table never sends, so this is ready at once and no task has to be woken.
        let ready = self
            .sender
            .poll_ready(&mut Context::from_waker(Waker::noop()));
        let is_open = matches!(ready, Poll::Ready(Ok(())));
        if !is_open || (self.streams == 0 && !self.is_fresh(now)) {
            return Err(NoStream::Ended);
        }
        if !self.has_room() {
            self.is_listed = false;
            return Err(NoStream::Full);
        }
        self.streams += 1;
        self.requests += 1;
        self.used = now;
        Ok(self.sender.clone())
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) < IDLE
    }

    fn is_worn(&self) -> bool {
        self.requests >= REQUESTS_MAX
    }

    fn has_room(&self) -> bool {
        // Read each time, because the server may change its limit at any time (RFC 9113, 5.1.2).
        self.streams < usize::from(STREAMS_MAX).min(self.sender.current_max_send_streams())
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.connections.give_back(self.id);
    }
}
