//! Metrics of the process.

use prometheus::IntGauge;

use super::list::List;

#[derive(Debug)]
pub struct ProcessMetrics {
    pub ready: IntGauge,
    pub calls_running: IntGauge,
}

impl ProcessMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        let build = list.gauges(
            "raincheck_build_info",
            "Always 1. The version is a label.",
            &["version"],
        );
        let version = env!("CARGO_PKG_VERSION");
        build.with_label_values(&[version]).set(1);
        Self {
            ready: list.gauge(
                "raincheck_ready",
                "1 if `/readyz` says that this replica is ready, else 0.",
            ),
            calls_running: list.gauge(
                "raincheck_calls_running",
                "Calls that this replica carries now. Calls that wait for their turn count, too.",
            ),
        }
    }
}
