//! The settings that change while the process serves, and the parts that they belong to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use serde_json::json;

use crate::config::{self, ChangedSetting, Config};
use crate::downstream::server::ConnectionLimits;
use crate::downstream::{HeldPolls, LiveSettings, Proxy};
use crate::store::quota::Allowance;

/// The running parts. None of them is kept alive by this.
#[derive(Debug)]
pub(super) struct LiveParts {
    pub(super) proxy: Weak<Proxy>,
    /// `None`: the one client is on our standard input.
    pub(super) connections: Option<Arc<ConnectionLimits>>,
    /// The largest result at the start, for which the connections to the server were made.
    pub(super) result_bytes_max: u64,
}

impl LiveParts {
    /// Gives the parts their settings. Calls that run keep the rules that they began with. Returns the changes beyond what
    /// was made room for at the start.
    pub(super) fn apply(&self, config: &Config) -> Option<ChangedSetting> {
        // The parts may have ended already. Then no setting has an effect any more.
        let proxy = self.proxy.upgrade()?;
        let limits = &config.limits;
        let live = &proxy.live;
        let relaxed = Ordering::Relaxed;
        live.body_bytes_max.store(limits.body_bytes_max, relaxed);
        live.listen_task_ids_max
            .store(limits.listen_task_ids, relaxed);
        live.access_log.store(config.telemetry.access_log, relaxed);
        proxy.room.resize(limits.buffer_bytes_max);
        if let Some(fair) = &proxy.fair {
            fair.requests.resize(limits.requests_per_caller);
            fair.bytes.resize(limits.buffer_bytes_max / 2);
        }
        let (places, of_caller) = (limits.held_polls, held_of_caller(limits));
        proxy.held_polls.resize(places, of_caller);
        if let Some(connections) = &self.connections {
            connections.resize(limits.connections);
            connections.set_header_timeout(limits.header_timeout);
        }
        let (of_caller, in_all) = quotas(limits);
        proxy.runner.ledger().change_quotas(of_caller, in_all);
        let runner = &proxy.runner;
        runner.change_limits(limits.calls, limits.calls_per_caller);
        runner.change_rules(&config.rules);
        let largest = config.rules.result_bytes_max();
        // The connections were made for the largest result at the start, and refuse a larger message until a restart.
        (largest > self.result_bytes_max).then(|| ChangedSetting {
            setting: "result_bytes_max (beyond the largest one at the start)".to_owned(),
            before: json!(self.result_bytes_max),
            after: json!(largest),
        })
    }
}

/// Returns the places for held polls. `asks`: clients must identify themselves.
pub(super) fn held_polls(limits: &config::LimitSettings, asks: bool) -> HeldPolls {
    HeldPolls::new(limits.held_polls, asks.then(|| held_of_caller(limits)))
}

/// A caller whose polls wait can still make other requests.
fn held_of_caller(limits: &config::LimitSettings) -> usize {
    config::half(limits.requests_per_caller)
}

/// The settings of the downstream side that change while it serves.
pub(super) fn settings(config: &Config) -> Arc<LiveSettings> {
    Arc::new(LiveSettings {
        body_bytes_max: AtomicUsize::new(config.limits.body_bytes_max),
        listen_task_ids_max: AtomicUsize::new(config.limits.listen_task_ids),
        access_log: AtomicBool::new(config.telemetry.access_log),
    })
}

/// Returns the most that may be kept of one caller, and of all callers.
pub(super) fn quotas(limits: &config::LimitSettings) -> (Allowance, Allowance) {
    let allowance = |quota: config::Quota| Allowance {
        entries: quota.entries as u64,
        bytes: quota.bytes,
    };
    (allowance(limits.tasks_per_caller), allowance(limits.tasks))
}
