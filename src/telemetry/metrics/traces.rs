//! Metrics of spans.

use prometheus::IntCounterVec;

use super::list::List;

#[derive(Debug)]
pub struct TraceMetrics {
    pub spans: IntCounterVec,
}

impl TraceMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        Self {
            spans: list.counters(
                "raincheck_spans_total",
                "Spans for the collector of traces: exported; dropped, because the collector did not take them in time; or \
                 refused by the collector for good.",
                &["outcome"],
            ),
        }
    }
}
