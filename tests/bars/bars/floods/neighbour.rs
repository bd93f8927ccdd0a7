//! A client that makes small calls while others flood, and remembers the slowest.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::apart::Apart;
use crate::client::{Client, Heard};

/// The pause between two calls.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Neighbour {
    calls: Arc<Mutex<Calls>>,
    _calling: Apart,
}

/// What became of the calls since they were asked for last.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) answered: u64,
    pub(super) slowest: Duration,
    /// The slowest of the calls by a replica that nobody floods: what the machine itself takes.
    pub(super) slowest_elsewhere: Duration,
    /// Answers that were no result.
    pub(super) failed: Vec<String>,
}

impl Calls {
    fn note(&mut self, flooded: Timed, elsewhere: Timed) {
        self.answered += 1;
        self.slowest = self.slowest.max(flooded.took);
        self.slowest_elsewhere = self.slowest_elsewhere.max(elsewhere.took);
        for heard in [flooded.heard, elsewhere.heard] {
            if !matches!(heard, Heard::Result(_)) {
                self.failed.push(format!("{heard:?}"));
            }
        }
    }
}

impl Neighbour {
    /// One of the replica at the first address, which is to be flooded, and of the one at the second.
    pub(super) fn start(flooded: SocketAddr, elsewhere: SocketAddr) -> Self {
        let calls = Arc::new(Mutex::new(Calls::default()));
        let noted = Arc::clone(&calls);
        Self {
            calls,
            _calling: Apart::start(
                move || async move { make_calls(flooded, elsewhere, &noted).await },
            ),
        }
    }

    /// What became of the calls since this was asked last.
    pub(super) fn take(&self) -> Calls {
        std::mem::take(&mut lock(&self.calls))
    }
}

/// Calls of both replicas at the same time, so that what holds up the machine or the server holds up both: one that is
/// passed on or one that may become a task, on a connection that is open or on a new one.
async fn make_calls(flooded: SocketAddr, elsewhere: SocketAddr, calls: &Mutex<Calls>) {
    let kept = [Client::of(flooded), Client::of(elsewhere)];
    for turn in 0_u64.. {
        let tool = ["plain", "work"][usize::from(turn.is_multiple_of(2))];
        let [flooded, elsewhere] = kept.each_ref().map(|client| {
            let client = if turn % 4 < 2 {
                client.clone()
            } else {
                client.anew()
            };
            timed(client, tool)
        });
        let (flooded, elsewhere) = tokio::join!(flooded, elsewhere);
        lock(calls).note(flooded, elsewhere);
        tokio::time::sleep(PAUSE).await;
    }
}

struct Timed {
    heard: Heard,
    took: Duration,
}

async fn timed(client: Client, tool: &str) -> Timed {
    let began = Instant::now();
    let heard = client.call(tool, json!({})).await;
    let took = began.elapsed();
    Timed { heard, took }
}

fn lock(calls: &Mutex<Calls>) -> std::sync::MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
