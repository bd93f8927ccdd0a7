//! What operators hear of webhooks: a counter, and a line for each notice that is given up.

use tracing::warn;

use super::metrics::METRICS;
use crate::task::state::Task;

/// What came of an attempt to tell a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Delivered,
    /// The receiver said that it is gone.
    Gone,
    Failed,
    /// The receiver's name led to no address that is allowed.
    Refused,
}

impl Delivery {
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Refused)
    }
}

/// Counts an attempt. After a failure it is tried again.
pub fn attempted(delivery: Delivery) {
    count(match delivery {
        Delivery::Delivered => "delivered",
        Delivery::Gone => "gone",
        Delivery::Failed => "retried",
        Delivery::Refused => "refused",
    });
}

/// Reports that a receiver never heard of a state of this task.
pub fn given_up(task: &Task, host: Option<&str>) {
    let host = host.unwrap_or_default();
    count("given_up");
    warn!(task = ?task.id, tool = %task.name, host, "a webhook was given up: its receiver did not take it in time");
}

fn count(outcome: &str) {
    let deliveries = &METRICS.notices.deliveries;
    deliveries.with_label_values(&[outcome]).inc();
}
