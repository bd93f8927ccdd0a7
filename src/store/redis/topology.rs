//! The current map of servers and slots, which is found out again when it comes into doubt.
//!
//! Sentinels are asked for the primary, and cluster nodes for their slots. Several are asked at the same time and the
//! most common answer counts, because a server that was cut off still reports the past.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::address::Target;
use super::connector::RedisConnector;
use super::error::{RedisOpenError, code_in_script};
use super::map::{Map, RedisServer};
use super::{cluster, sentinel};
use crate::base::backoff::Backoff;

/// The current map, and how to renew it.
pub(super) struct Topology {
    target: Target,
    connector: RedisConnector,
    map: watch::Sender<Arc<Map>>,
    /// A command failed in a way that does not fit the map.
    doubted: Notify,
}

impl Topology {
    /// Finds the map once.
    pub(super) async fn find(
        target: Target,
        connector: RedisConnector,
    ) -> Result<Self, RedisOpenError> {
        let map = match &target {
            Target::Single(url) => Map::of_one(connector.server(url, 0)?),
            Target::Sentinel {
                sentinels,
                primary,
                at,
            } => sentinel::find(&connector, sentinels, primary, at, None).await?,
            Target::Cluster { seeds, at } => cluster::find(&connector, seeds, at, &[]).await?,
        };
        Ok(Self {
            target,
            connector,
            map: watch::Sender::new(Arc::new(map)),
            doubted: Notify::new(),
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    pub(super) fn connector(&self) -> &RedisConnector {
        &self.connector
    }

    pub(super) fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.borrow())
    }

    /// Changes with the map.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<Map>> {
        self.map.subscribe()
    }

    /// A server of the cluster by its address, as one of the nodes named it.
    pub(super) fn named(&self, host: &str, port: u16) -> Option<Arc<RedisServer>> {
        let Target::Cluster { at, .. } = &self.target else {
            return None;
        };
        let server = self.connector.server(&at.url(host, port), 0).ok()?;
        let map = self.map();
        let known = map.servers.iter().find(|known| known.is(&server));
        Some(known.map_or_else(|| Arc::new(server), Arc::clone))
    }

    /// Puts the map in doubt if a command's error may mean that the map is old.
    pub(super) fn doubt(&self, error: &RedisError) {
        let old = if let ErrorKind::Server(kind) = error.kind() {
            is_elsewhere(kind) || matches!(code_in_script(error), Some("READONLY" | "MASTERDOWN"))
        } else {
            // A single server that is away comes back at the same address.
            error.is_io_error() && !matches!(self.target, Target::Single(_))
        };
        if old {
            self.doubted.notify_one();
        }
    }

    /// Renews the map when it is in doubt, as long as this is polled. May be dropped at any point.
    pub(super) async fn keep(&self) {
        let mut told = false;
        let mut pauses = PAUSES;
        loop {
            if tokio::time::timeout(QUIET, self.doubted.notified())
                .await
                .is_err()
            {
                pauses.reset();
                // The map is settled for now, and the connections for these questions are needed no more.
                for server in &self.map().servers {
                    *server.kept() = None;
                }
                if matches!(self.target, Target::Sentinel { .. }) {
                    // A primary that was cut off together with us still answers. Only the Sentinels know better.
                    let _ = tokio::time::timeout(LOOK, self.doubted.notified()).await;
                } else {
                    self.doubted.notified().await;
                }
            }
            match self.find_map().await {
                Ok(map) => {
                    told = false;
                    if self.publish(map) {
                        pauses.reset();
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        warn!(%error, "the current Redis servers are unknown; asking again");
                    }
                    // The doubt stays until a map is found, even if no command fails meanwhile.
                    self.doubted.notify_one();
                }
            }
            tokio::time::sleep(pauses.spread_pause()).await;
        }
    }

    async fn find_map(&self) -> Result<Map, RedisOpenError> {
        match &self.target {
            // Only a new connection resolves the name again and finds the new primary behind it.
            Target::Single(url) => {
                let map = self.map();
                let last = map.servers.iter().map(|server| server.generation).max();
                let next = last.unwrap_or_default().wrapping_add(1);
                Ok(Map::of_one(self.connector.server(url, next)?))
            }
            Target::Sentinel {
                sentinels,
                primary,
                at,
            } => {
                let map = self.map();
                let known = map.servers.first();
                sentinel::find(&self.connector, sentinels, primary, at, known).await
            }
            Target::Cluster { seeds, at } => {
                cluster::find(&self.connector, seeds, at, &self.map().servers).await
            }
        }
    }

    /// Publishes a map. Returns true if it differs from the old one; a new connection to a single server is no difference.
    fn publish(&self, map: Map) -> bool {
        let is_single = matches!(self.target, Target::Single(_));
        // The follower restarts with each new map, so an equal one must not wake it.
        let is_new = self.map.send_if_modified(|now| {
            let changed = !now.is_like(&map);
            if changed {
                if !is_single {
                    let names: Vec<_> = map.servers.iter().map(|server| &*server.name).collect();
                    info!(servers = ?names, "the Redis servers changed");
                }
                *now = Arc::new(map);
            }
            changed
        });
        is_new && !is_single
    }
}

/// Returns `true` if the error means that another server must be asked, now or for good.
fn is_elsewhere(kind: ServerErrorKind) -> bool {
    matches!(
        kind,
        ServerErrorKind::ReadOnly
            | ServerErrorKind::Moved
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
    )
}

/// The pauses between two searches while the map is in doubt, because every command during a failover raises the doubt
/// again. They grow as long as the doubt comes back.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(2));

/// After this time without a doubt the pause starts from the beginning. Longer than the time between two heartbeats.
const QUIET: Duration = Duration::from_secs(3);

/// The time between two searches without any doubt.
const LOOK: Duration = Duration::from_secs(10);
