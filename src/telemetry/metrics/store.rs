//! Metrics of the store.

use prometheus::{HistogramVec, IntCounterVec};

use super::list::{List, STORE_SECONDS};

#[derive(Debug)]
pub struct StoreMetrics {
    pub operations: HistogramVec,
    pub refused_values: IntCounterVec,
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
            refused_values: list.counters(
                "raincheck_store_refused_values_total",
                "Values of the store that were not used, by what they were and why: `clear` is not sealed, where store.seal is \
                 \"payloads\"; `altered` was altered or moved after it was sealed; `unknown_key` is sealed under a key that \
                 this replica does not have.",
                &["what", "why"],
            ),
        }
    }
}
