//! A receiver of `[[notify]]`.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::body::body;
use super::delivery::Teller;
use super::receiver::{Attempt, Message, Receiver};
use crate::task::notices::{Notice, ReceiverId, message_id};
use crate::task::state::Task;

/// A receiver of `[[notify]]`, and what this process learned of it.
#[derive(Debug)]
pub struct ConfiguredReceiver {
    receiver: Receiver,
    /// The receiver said that it is gone for good.
    is_gone: AtomicBool,
}

impl ConfiguredReceiver {
    pub fn new(receiver: Receiver) -> Self {
        Self {
            receiver,
            is_gone: AtomicBool::new(false),
        }
    }
}

impl Teller for ConfiguredReceiver {
    const AT_ONCE: usize = 8;

    async fn attempt(
        &self,
        task: &Task,
        receiver: ReceiverId,
        notice: &Notice,
        now_ms: u64,
    ) -> Option<Attempt> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Some(Attempt::Gone);
        }
        let message = Message {
            id: &message_id(task.id, receiver, notice),
            at_s: now_ms / 1000,
            body: body(task, notice),
        };
        let attempt = self.receiver.send(message).await;
        if attempt == Attempt::Gone {
            self.is_gone.store(true, Ordering::Relaxed);
            let host = &*self.receiver.host;
            warn!(
                host,
                "a receiver of webhooks is gone (HTTP 410): it is told nothing more until raincheck starts again"
            );
        }
        if let Attempt::Refused { why } = &attempt {
            warn!(host = &*self.receiver.host, why, "a webhook was not sent");
        }
        Some(attempt)
    }

    fn host(&self) -> Option<&str> {
        Some(&self.receiver.host)
    }
}
