//! The idle HTTP/1.1 connections to the wrapped server: a stack, so that taking and giving back cost the same
//! however many calls are open.

use std::collections::VecDeque;
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use crate::lock::Mutex;
use crate::upstream::http::request_body::RequestBody;

/// Common servers close an idle connection after 5 s, so raincheck gives it up before.
pub(super) const IDLE: Duration = Duration::from_secs(4);

/// How many idle connections are kept. Others are closed after use.
const IDLE_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct ConnectionPool {
    /// The idle connections, the newest last.
    idle: Mutex<VecDeque<(SendRequest<RequestBody>, Instant)>>,
}

impl ConnectionPool {
    /// A connection that is ready. The one that was used last comes first.
    pub(super) async fn take(&self) -> Option<SendRequest<RequestBody>> {
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

    pub(super) fn give_back(&self, sender: SendRequest<RequestBody>) {
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
