//! Which server holds which slot now, and finding out again when that comes into doubt.
//!
//! One server is simply there. Sentinels are asked who the primary is, cluster nodes who holds
//! what; several are asked at once and the answer that most of them give counts, because one that
//! was cut off still tells of the past.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::address::Target;
use super::error::OpenError;
use super::map::{Map, Server};
use super::reach::Reach;
use super::{cluster, sentinel};

/// Where everything is.
pub(super) struct Topology {
    target: Target,
    reach: Reach,
    map: watch::Sender<Arc<Map>>,
    /// Somebody met an answer, or none, that does not fit the map.
    doubted: Notify,
}

impl Topology {
    /// Asks once where everything is.
    pub(super) async fn find(target: Target, reach: Reach) -> Result<Self, OpenError> {
        let map = match &target {
            Target::Single(url) => Map::of_one(reach.server(url, 0)?),
            Target::Sentinel {
                sentinels,
                primary,
                at,
            } => sentinel::find(&reach, sentinels, primary, at, None).await?,
            Target::Cluster { seeds, at } => cluster::find(&reach, seeds, at, &[]).await?,
        };
        Ok(Self {
            target,
            reach,
            map: watch::Sender::new(Arc::new(map)),
            doubted: Notify::new(),
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    pub(super) fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.borrow())
    }

    /// Changes with the map.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<Map>> {
        self.map.subscribe()
    }

    /// Another server of the cluster, which one of its nodes named.
    pub(super) fn named(&self, host: &str, port: u16) -> Option<Arc<Server>> {
        let Target::Cluster { at, .. } = &self.target else {
            return None;
        };
        let server = self.reach.server(&at.url(host, port), 0).ok()?;
        let map = self.map();
        let known = map.servers.iter().find(|known| known.is(&server));
        Some(known.map_or_else(|| Arc::new(server), Arc::clone))
    }

    /// What a command came to, where it may mean that the map is old.
    pub(super) fn doubt(&self, error: &RedisError) {
        let old = if let ErrorKind::Server(kind) = error.kind() {
            is_elsewhere(kind)
        } else {
            // One server that is away is waited for where it was.
            error.is_io_error() && !matches!(self.target, Target::Single(_))
        };
        if old {
            self.doubted.notify_one();
        }
    }

    /// Keeps the map true, for as long as it is polled. May be dropped at any point.
    pub(super) async fn keep(&self) {
        let mut told = false;
        let mut pause = PAUSE;
        loop {
            if tokio::time::timeout(QUIET, self.doubted.notified())
                .await
                .is_err()
            {
                pause = PAUSE;
                for server in &self.map().servers {
                    *server.kept() = None;
                }
                if matches!(self.target, Target::Sentinel { .. }) {
                    // A primary that was cut off with us answers as ever: only the Sentinels know.
                    let _ = tokio::time::timeout(LOOK, self.doubted.notified()).await;
                } else {
                    self.doubted.notified().await;
                }
            }
            match self.look().await {
                Ok(map) => {
                    told = false;
                    if self.publish(map) {
                        pause = PAUSE;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(%error, "it is not known where Redis is now; asking on");
                    }
                    self.doubted.notify_one();
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn look(&self) -> Result<Map, OpenError> {
        match &self.target {
            // Only a new connection asks the name again, and finds the new primary behind it.
            Target::Single(url) => {
                let map = self.map();
                let last = map.servers.iter().map(|server| server.generation).max();
                let next = last.unwrap_or_default().wrapping_add(1);
                Ok(Map::of_one(self.reach.server(url, next)?))
            }
            Target::Sentinel {
                sentinels,
                primary,
                at,
            } => {
                let map = self.map();
                let known = map.servers.first();
                sentinel::find(&self.reach, sentinels, primary, at, known).await
            }
            Target::Cluster { seeds, at } => {
                cluster::find(&self.reach, seeds, at, &self.map().servers).await
            }
        }
    }

    /// True where something else is known now than before. One server that is only connected to
    /// anew is the same.
    fn publish(&self, map: Map) -> bool {
        let is_single = matches!(self.target, Target::Single(_));
        let is_new = self.map.send_if_modified(|now| {
            let changed = !now.is_like(&map);
            if changed {
                if !is_single {
                    let names: Vec<_> = map.servers.iter().map(|server| &*server.name).collect();
                    info!(servers = ?names, "Redis is elsewhere now");
                }
                *now = Arc::new(map);
            }
            changed
        });
        is_new && !is_single
    }
}

/// Answers of a server that is not, or not now, the one to ask.
fn is_elsewhere(kind: ServerErrorKind) -> bool {
    matches!(
        kind,
        ServerErrorKind::ReadOnly
            | ServerErrorKind::Moved
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
    )
}

/// Between two looks in doubt: every command of an undecided failover would ask. Longer each time, as
/// long as the doubt comes back.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Without a doubt for so long, the next one is a new one. Longer than between two heartbeats.
const QUIET: Duration = Duration::from_secs(3);

/// Between two looks without any doubt.
const LOOK: Duration = Duration::from_secs(10);
