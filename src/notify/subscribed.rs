//! Notifies the receivers that clients subscribed (`events/subscribe`) of the events of their tasks.

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::callbacks::Callbacks;
use super::delivery::Teller;
use super::receiver::{Attempt, Message};
use crate::sharing::shares::Shares;
use crate::sharing::turns::Turns;
use crate::store::subscriptions::SubscriptionStore;
use crate::task::events::subscriptions::Subscription;
use crate::task::events::{EventMark, event_id, occurrence_at};
use crate::task::notices::{Notice, ReceiverId};
use crate::task::state::Task;

/// The messages that are sent at the same time, to the receivers of one caller and of all.
const SENT_OF_CALLER: usize = 8;
const SENT: usize = 64;

/// The messages of one caller that are sent or wait for their turn. Without it the messages to one receiver that hangs would
/// keep those of other callers waiting.
const WAITING_OF_CALLER: usize = 64;

/// The time that a message waits for its turn. With an attempt it is shorter than a claim.
const TURN_PATIENCE: Duration = Duration::from_secs(3);

/// The receivers of all subscriptions.
#[derive(Debug)]
pub struct SubscribedReceivers {
    store: SubscriptionStore,
    callbacks: Callbacks,
    waiting: Arc<Shares>,
    turns: Turns,
}

impl SubscribedReceivers {
    pub fn new(store: SubscriptionStore, callbacks: Callbacks) -> Self {
        Self {
            store,
            callbacks,
            waiting: Shares::new(WAITING_OF_CALLER),
            turns: Turns::new(SENT_OF_CALLER, SENT),
        }
    }

    async fn send(
        &self,
        subscription: &Subscription,
        event: SubscribedEvent,
        now_ms: u64,
    ) -> Attempt {
        let Some(receiver) = self.callbacks.receiver(subscription, now_ms) else {
            let why = "the address is not one that webhooks may go to".to_owned();
            return Attempt::Refused { why };
        };
        let message = Message {
            id: &event.id,
            at_s: now_ms / 1000,
            body: event.body,
        };
        receiver.send(message).await
    }
}

impl Teller for SubscribedReceivers {
    const AT_ONCE: usize = 256;

    async fn attempt(
        &self,
        task: &Task,
        receiver: ReceiverId,
        notice: &Notice,
        now_ms: u64,
    ) -> Option<Attempt> {
        // First the share of those that wait, so that one caller cannot fill the places of this queue.
        let Some(_waiting) = self.waiting.take(task.caller, 1) else {
            return Some(Attempt::Busy);
        };
        let Some(_turn) = self.turns.take(task.caller, TURN_PATIENCE).await else {
            return Some(Attempt::Busy);
        };
        // Read for each attempt: a subscription that has ended hears nothing more.
        let all = self.store.of(&task.caller).await.ok()?;
        let Some(subscription) = all.find(receiver, now_ms) else {
            return Some(Attempt::Unheard);
        };
        // The record still named the subscription before, which had ended, and the client made it again.
        if EventMark::of(task).is_some_and(|mark| subscription.began_after(mark)) {
            return Some(Attempt::Unheard);
        }
        let Some(event) = SubscribedEvent::of(task, notice, subscription, now_ms) else {
            return Some(Attempt::Outdated);
        };
        let attempt = self.send(subscription, event, now_ms).await;
        if attempt == Attempt::Gone {
            debug!("the receiver of a subscription is gone (HTTP 410): the subscription ends");
            let end = self.store.change(&task.caller, now_ms, |all| {
                // A client that renewed it meanwhile has answered for its receiver.
                all.find(receiver, now_ms) == Some(subscription) && all.end(receiver, now_ms)
            });
            // If it stays, the next message ends it.
            let _ = end.await;
        }
        Some(attempt)
    }

    fn host(&self) -> Option<&str> {
        None
    }
}

/// One event, as a subscription receives it.
struct SubscribedEvent {
    id: String,
    body: String,
}

impl SubscribedEvent {
    /// `None`: there is nothing to send. The question was answered by now, or was sent before.
    fn of(task: &Task, notice: &Notice, to: &Subscription, now_ms: u64) -> Option<Self> {
        let is_present = task.status().word() == notice.state.word() && !notice.is_reminder;
        let mark = EventMark::of(task).filter(|_| is_present)?;
        let cursor = to.cursor(now_ms).encode();
        Some(Self {
            id: event_id(mark),
            body: occurrence_at(task, mark, Some(&cursor)),
        })
    }
}
