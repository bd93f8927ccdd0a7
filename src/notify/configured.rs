//! A receiver of `[[notify]]`.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};

use super::body::body;
use super::delivery::Teller;
use super::receiver::{Attempt, Message, Receiver};
use crate::task::notices::{Notice, ReceiverId, message_id};
use crate::task::state::Task;

/// A receiver of `[[notify]]`, and what this process learned of it.
#[derive(Debug)]
pub struct ConfiguredReceiver {
    receiver: Receiver,
    /// `true` if the receiver responded that it is gone for good.
    is_gone: AtomicBool,
    /// The last message was not taken.
    is_failing: AtomicBool,
}

impl ConfiguredReceiver {
    pub fn new(receiver: Receiver) -> Self {
        Self {
            receiver,
            is_gone: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Logs the beginning and the end of failures. Each attempt between them is counted only, because a receiver that is
    /// away must not fill the log.
    fn log(&self, attempt: &Attempt) {
        let host = &*self.receiver.host;
        match attempt {
            Attempt::Gone => {
                self.is_gone.store(true, Ordering::Relaxed);
                warn!(
                    host,
                    "a receiver of webhooks is gone (HTTP 410): it is told nothing more until raincheck starts again"
                );
            }
            Attempt::Refused { why } => warn!(host, why, "a webhook was not sent"),
            Attempt::Failed { why, .. } => {
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    warn!(
                        host,
                        why, "a receiver did not take a webhook; it is tried again"
                    );
                }
            }
            Attempt::Delivered => {
                if self.is_failing.swap(false, Ordering::Relaxed) {
                    info!(host, "a receiver takes webhooks again");
                }
            }
            Attempt::Rejected | Attempt::Unheard | Attempt::Outdated | Attempt::Busy => {}
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
        // Without an attempt: this result settles the notice, which would be tried again and again otherwise.
        if self.is_gone.load(Ordering::Relaxed) {
            return Some(Attempt::Gone);
        }
        let message = Message {
            id: &message_id(task.id, receiver, notice),
            at_s: now_ms / 1000,
            body: body(task, notice),
        };
        let attempt = self.receiver.send(message).await;
        self.log(&attempt);
        Some(attempt)
    }

    fn host(&self) -> Option<&str> {
        Some(&self.receiver.host)
    }
}
