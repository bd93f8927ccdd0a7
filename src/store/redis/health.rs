//! Watches the eviction policy of Redis, which was checked at open and may change later.

use std::sync::Arc;
use std::time::Duration;

use redis::InfoDict;
use tokio::sync::watch;
use tracing::{info, warn};

use super::super::StoreHealth;
use super::link::Link;
use super::topology::Topology;

/// Polls the eviction policy and logs each change once.
pub(super) struct PolicyWatch {
    pub(super) link: Arc<Link>,
    pub(super) topology: Arc<Topology>,
    pub(super) allow_eviction: bool,
    pub(super) every: Duration,
    pub(super) health: watch::Sender<StoreHealth>,
}

impl PolicyWatch {
    /// Runs as long as it is polled. May be dropped at any point.
    pub(super) async fn run(self) {
        // The operator accepts a server that evicts, so there is nothing to warn of.
        if self.allow_eviction {
            return;
        }
        loop {
            // The policies were checked when the store was opened, so the first look can come later.
            tokio::time::sleep(self.every).await;
            let Some(now) = self.read_policies().await else {
                continue;
            };
            let before = self.health.send_replace(now);
            match (before == now, now) {
                (true, _) => {}
                (false, StoreHealth::Good | StoreHealth::Full) => info!("Redis keeps tasks again"),
                (false, StoreHealth::Degraded(why)) => warn!("{why}"),
            }
        }
    }
}

impl PolicyWatch {
    /// The health, or `None` if not every server answered. One server that evicts is enough for `Degraded`; `Good` needs
    /// the answers of all servers.
    async fn read_policies(&self) -> Option<StoreHealth> {
        let mut all_told = true;
        for server in &self.topology.map().servers {
            let mut command = redis::cmd("INFO");
            command.arg("memory");
            let info = self.link.ask::<InfoDict>(server, &command).await.ok();
            match info.and_then(|info| info.get::<String>(POLICY)) {
                Some(policy) if policy != SAFE => return Some(StoreHealth::Degraded(EVICTS)),
                Some(_) => {}
                None => all_told = false,
            }
        }
        all_told.then_some(StoreHealth::Good)
    }
}

/// The eviction policy's name in INFO.
pub(super) const POLICY: &str = "maxmemory_policy";

/// The only policy under which a task lives until its expiry.
pub(super) const SAFE: &str = "noeviction";

const EVICTS: &str = "Redis may evict tasks: its maxmemory-policy was changed, set noeviction";
