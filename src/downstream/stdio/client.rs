//! The one client of this process, and which of its requests are under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, Once};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::proxy::Shared;
use super::session::Session;
use crate::lock::Mutex;
use crate::mcp::error::RpcError;

/// Requests under way at once; more wait in the pipe.
const REQUESTS_MAX: usize = 1024;

/// What is known of the client.
pub(super) struct Client {
    pub(super) front: Shared,
    pub(super) out: mpsc::Sender<String>,
    /// Requests under way, by their id as JSON.
    pub(super) running: Mutex<HashMap<Box<str>, Running>>,
    /// A legacy client's.
    pub(super) session: Session,
    /// That the server asks for a sign-in is logged once.
    pub(super) sign_in: Once,
    /// Requests that were ever taken.
    pub(super) taken: AtomicU64,
    pub(super) requests: TaskTracker,
    /// The client hears no more.
    pub(super) gone: CancellationToken,
}

/// A request under way.
pub(super) struct Running {
    pub(super) number: u64,
    pub(super) cancelled: CancellationToken,
}

impl Client {
    /// From here on the id may be used again; by somebody else it may be in use already.
    pub(super) fn is_over(&self, id: &str, number: u64) {
        let mut running = self.running();
        if running.get(id).is_some_and(|it| it.number == number) {
            running.remove(id);
        }
    }

    pub(super) fn running(&self) -> MutexGuard<'_, HashMap<Box<str>, Running>> {
        self.running.lock()
    }

    /// A place for the request; an error where it cannot be taken.
    pub(super) fn register(&self, id: &str) -> Result<(u64, CancellationToken), RpcError> {
        let mut running = self.running();
        if running.contains_key(id) {
            return Err(RpcError::invalid_request(
                "Invalid request: this id is in use",
            ));
        }
        if running.len() >= REQUESTS_MAX {
            return Err(RpcError::internal(
                "Too many requests are under way; try again later",
            ));
        }
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let cancelled = CancellationToken::new();
        let entry = Running {
            number,
            cancelled: cancelled.clone(),
        };
        running.insert(id.into(), entry);
        Ok((number, cancelled))
    }

    pub(super) async fn say(&self, message: String) {
        let _ = self.out.send(line(message)).await;
    }
}

/// A message on one line: outside of strings, where they are escaped, line ends are white space.
fn line(mut message: String) -> String {
    if message.contains(['\n', '\r']) {
        message = message.replace(['\n', '\r'], " ");
    }
    message.push('\n');
    message
}
