//! The note between the front of a client that waits for a call and the job that answers it: how the client left, and that it
//! sent the same call again.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::{Notify, oneshot};

use crate::base::lock::Mutex;
use crate::mcp::tools::Repeats;

/// The most requests that wait at one time to join the same call.
const SENT_AGAIN_MAX: usize = 8;

/// How a client left that went away before it had its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Its connection closed.
    Disconnected,
    /// It cancelled the call.
    Cancelled,
    /// It cancelled the call because its clock ended.
    GaveUp,
}

const CANCELLED: u8 = 1;
const GAVE_UP: u8 = 2;

/// The note of one client. Without a word about its leaving its connection closed.
#[derive(Debug, Clone, Default)]
pub struct ClientNote(Arc<Note>);

#[derive(Debug, Default)]
struct Note {
    leaving: AtomicU8,
    has_sent_again: Notify,
    sent_again: Mutex<Vec<SentAgain>>,
}

/// The same call, which came again while the first one runs. Dropped, it looks for the claim of the first one.
#[derive(Debug)]
pub struct SentAgain {
    pub(super) repeats: Repeats,
    waits: oneshot::Sender<()>,
}

impl ClientNote {
    pub fn leaves(&self, how: Leaving) {
        let how = match how {
            Leaving::Disconnected => 0,
            Leaving::Cancelled => CANCELLED,
            Leaving::GaveUp => GAVE_UP,
        };
        // Relaxed is enough. The note is written before the guard decides, and readers look here only after that decision,
        // which they read with Acquire.
        self.0.leaving.store(how, Ordering::Relaxed);
    }

    /// How the client left, once it has.
    pub fn leaving(&self) -> Leaving {
        match self.0.leaving.load(Ordering::Relaxed) {
            CANCELLED => Leaving::Cancelled,
            GAVE_UP => Leaving::GaveUp,
            _ => Leaving::Disconnected,
        }
    }

    /// Notes that the client sent the same call again. Resolves when that call may look for the claim of this one, which
    /// exists unless this call cannot be shared. Cancel safe.
    pub async fn sends_again(&self, repeats: Repeats) {
        let (waits, done) = oneshot::channel();
        {
            let mut sent_again = self.0.sent_again.lock();
            if sent_again.len() >= SENT_AGAIN_MAX {
                return;
            }
            sent_again.push(SentAgain { repeats, waits });
        }
        self.0.has_sent_again.notify_one();
        // Nothing is sent: the end of the sender is the notification.
        let _ = done.await;
    }

    /// Resolves when the client has sent the same call again. Cancel safe.
    pub async fn sent_again(&self) {
        while self.0.sent_again.lock().is_empty() {
            self.0.has_sent_again.notified().await;
        }
    }

    /// Takes the same calls that wait.
    pub fn take_sent_again(&self) -> Vec<SentAgain> {
        let mut taken = mem::take(&mut *self.0.sent_again.lock());
        taken.retain(|again| !again.waits.is_closed());
        taken
    }
}
