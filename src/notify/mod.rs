//! Notifies receivers of the states of tasks: those of `[[notify]]`, and those that clients subscribed
//! (`events/subscribe`). Signed webhooks (Standard Webhooks).
//!
//! The record of the task (`task/notices`) contains what must be sent, to which receiver and when. Here are the jobs
//! that send it: one for each receiver of `[[notify]]`, and one for all subscriptions.

pub mod body;
pub mod callbacks;
mod configured;
mod delivery;
pub mod destination;
mod receiver;
pub mod signature;
mod subscribed;
mod verification;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use configured::ConfiguredReceiver;
pub use receiver::Receiver;
pub use subscribed::SubscribedReceivers;
pub use verification::{ChallengeFailure, verify};

use crate::store::ledger::Ledger;
use crate::store::outbox::OutboxQueue;

/// Notifies a receiver of `[[notify]]` of the tasks in its queue until `stop`. Notices that are not sent then are in
/// the records.
pub async fn tell(
    receiver: Arc<ConfiguredReceiver>,
    ledger: Ledger,
    queue: OutboxQueue,
    stop: CancellationToken,
) {
    delivery::tell(receiver, ledger, queue, stop).await;
}

/// The same for the receivers that clients subscribed.
pub async fn tell_subscribed(
    subscribed: Arc<SubscribedReceivers>,
    ledger: Ledger,
    queue: OutboxQueue,
    stop: CancellationToken,
) {
    delivery::tell(subscribed, ledger, queue, stop).await;
}
