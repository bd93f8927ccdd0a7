//! Metrics of the store.

use prometheus::HistogramVec;

use super::list::{List, STORE_SECONDS};

#[derive(Debug)]
pub struct StoreMetrics {
    pub operations: HistogramVec,
}

impl StoreMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        Self {
            operations: list.histograms(
                "raincheck_store_operation_seconds",
                "Seconds of each command to the store, by outcome: `ok`, `full`, `unavailable`, `unreadable`.",
                &["operation", "outcome"],
                STORE_SECONDS,
            ),
        }
    }
}
