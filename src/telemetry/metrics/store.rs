//! Metrics of the store.

use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge};

use super::list::{List, STORE_SECONDS};

#[derive(Debug)]
pub struct StoreMetrics {
    pub operations: HistogramVec,
    pub refused_values: IntCounterVec,
    pub history_gaps: IntCounter,
    pub unacknowledged: IntGauge,
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
            unacknowledged: list.gauge(
                "raincheck_tasks_unacknowledged",
                "Failed tasks of the history that nobody has acknowledged (`raincheck tasks ack`), on all replicas together: each \
                 replica counts them once a minute.",
            ),
            history_gaps: list.counter(
                "raincheck_store_history_gaps_total",
                "How often entries of the history came faster than replicas put them together, or could not be put together \
                 because the store was full: some entries may be lost.",
            ),
        }
    }
}
