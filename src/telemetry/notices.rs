//! Metrics for operators about webhooks, and a line for each notice that is given up.

use tracing::{debug, warn};

use super::metrics::METRICS;
use crate::task::notices::ReceiverId;
use crate::task::state::Task;

/// The result of an attempt to deliver a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Delivered,
    /// The receiver answered that it is gone.
    Gone,
    Failed,
    /// The receiver's name led to no address that is allowed.
    Refused,
    /// The receiver of a subscription will never take this message.
    Rejected,
}

/// Counts an attempt. After a failure it is tried again.
pub fn attempted(delivery: Delivery) {
    count(match delivery {
        Delivery::Delivered => "delivered",
        Delivery::Gone => "gone",
        Delivery::Failed => "retried",
        Delivery::Refused => "refused",
        Delivery::Rejected => "rejected",
    });
}

/// Reports that a receiver was never notified of a state of this task. The receiver of a subscription is its client's
/// business, and not the operator's.
pub fn given_up(task: &Task, receiver: ReceiverId, host: Option<&str>) {
    let host = host.unwrap_or_default();
    count("given_up");
    if receiver.is_subscription() {
        debug!(task = ?task.id, host, "a subscription did not take an event in time");
        return;
    }
    warn!(task = ?task.id, tool = %task.name, host, "a webhook was given up: its receiver did not take it in time");
}

fn count(outcome: &str) {
    let deliveries = &METRICS.notices.deliveries;
    deliveries.with_label_values(&[outcome]).inc();
}
