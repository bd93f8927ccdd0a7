//! Metrics of the process.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::list::List;

#[derive(Debug)]
pub struct ProcessMetrics {
    pub ready: IntGauge,
    pub upstream_up: IntGauge,
    pub degraded: IntGaugeVec,
    pub calls_running: IntGauge,
    pub calls_waiting: IntGauge,
    pub polls_held: IntGauge,
    pub sessions: IntGauge,
    pub processes: IntGauge,
    pub replicas: IntGauge,
    pub heartbeats_failed: IntCounter,
    pub owners_lost: IntCounter,
    pub log_lines_dropped: IntCounter,
    pub reloads: IntCounterVec,
}

impl ProcessMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        // This gauge never changes, so no field keeps it.
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
            upstream_up: list.gauge(
                "raincheck_upstream_up",
                "1 if the server answered when raincheck asked it last, which it does every 10 s, else 0. Whatever status the \
                 server answers with counts. A program counts as up unless it cannot be run (`upstream_cannot_run`).",
            ),
            degraded: list.gauges(
                "raincheck_degraded",
                "1 for each cause for which this replica is degraded now (`degraded` in the answer of `/readyz`), and 0 for the \
                 others.",
                &["cause"],
            ),
            polls_held: list.gauge(
                "raincheck_polls_held",
                "Polls that wait for a change of their task (`tasks.poll_hold`).",
            ),
            calls_running: list.gauge(
                "raincheck_calls_running",
                "Calls that this replica carries now. Calls that wait for their turn count, too.",
            ),
            calls_waiting: list.gauge(
                "raincheck_calls_waiting",
                "Calls of this replica that wait for their turn (`concurrency`), for a session (`sessions_max`) or a \
                 process (`children_max`), or for a server that is starting. Nothing of them is at the server.",
            ),
            sessions: list.gauge(
                "raincheck_upstream_sessions",
                "Sessions of this replica with a legacy server over HTTP that are open.",
            ),
            processes: list.gauge(
                "raincheck_upstream_processes",
                "Processes of the server's command that run.",
            ),
            replicas: list.gauge(
                "raincheck_replicas",
                "Replicas whose leases run in the store, this one included, by the last heartbeat.",
            ),
            heartbeats_failed: list.counter(
                "raincheck_heartbeats_failed_total",
                "Heartbeats of this replica that the store did not take. After `replica.lease` without one, other \
                 replicas take its tasks over.",
            ),
            owners_lost: list.counter(
                "raincheck_owners_lost_total",
                "Replicas whose lease ended with tasks left, as this replica found them.",
            ),
            log_lines_dropped: list.counter(
                "raincheck_log_lines_dropped_total",
                "Lines of the log that standard error did not take in time. No call waits for the reader of the log.",
            ),
            reloads: list.counters(
                "raincheck_reloads_total",
                "Reloads of the settings and files (SIGHUP, `POST /reload`), by outcome: `changed` (a setting changed, or needs a \
                 restart), `unchanged` (every setting is as it was; files were read anew), `failed` (something has a mistake, \
                 and everything stays as it was).",
                &["outcome"],
            ),
        }
    }
}
