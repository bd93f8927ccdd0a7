//! Metrics of webhooks.

use prometheus::IntCounterVec;

use super::list::List;

#[derive(Debug)]
pub struct NoticeMetrics {
    pub deliveries: IntCounterVec,
}

impl NoticeMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        Self {
            deliveries: list.counters(
                "raincheck_webhooks_total",
                "Attempts to send a webhook (`[[notify]]`, and the subscriptions of clients), by outcome: `delivered`; `retried`: it failed and is tried again; \
                 `refused`: the receiver's name led to an address that is not allowed, and it is tried again; `given_up`: it \
                 failed for the last time; `gone`: the receiver said that it wants none; `rejected`: the receiver of a subscription will never take it.",
                &["outcome"],
            ),
        }
    }
}
