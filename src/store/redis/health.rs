//! What was checked at open and may change later: whether Redis may evict tasks.

use std::sync::Arc;
use std::time::Duration;

use redis::InfoDict;
use tokio::sync::watch;
use tracing::{info, warn};

use super::super::Health;
use super::link::Link;
use super::open::POLICY;
use super::topology::Topology;

/// Looks again and again, and says each change once.
pub(super) struct Watchman {
    pub(super) link: Arc<Link>,
    pub(super) topology: Arc<Topology>,
    pub(super) allow_eviction: bool,
    pub(super) every: Duration,
    pub(super) health: watch::Sender<Health>,
}

impl Watchman {
    /// For as long as it is polled; may be dropped at any point.
    pub(super) async fn run(self) {
        if self.allow_eviction {
            return;
        }
        loop {
            tokio::time::sleep(self.every).await;
            let mut now = Health::Good;
            for server in &self.topology.map().servers {
                let mut command = redis::cmd("INFO");
                command.arg("memory");
                // A server that does not answer, or may not tell, changes nothing here.
                let Ok(info) = self.link.ask::<InfoDict>(server, &command).await else {
                    continue;
                };
                let policy = info.get::<String>(POLICY);
                if policy.is_some_and(|policy| policy != SAFE) {
                    now = Health::Degraded(EVICTS);
                }
            }
            let before = self.health.send_replace(now);
            match (before == now, now) {
                (true, _) => {}
                (false, Health::Good) => info!("Redis keeps tasks again"),
                (false, Health::Degraded(why)) => warn!("{why}"),
            }
        }
    }
}

/// The only policy under which a task lives until its expiry.
pub(super) const SAFE: &str = "noeviction";

const EVICTS: &str = "Redis may evict tasks: its maxmemory-policy was changed, set noeviction";
