//! Before the first task: is this a server that can keep it?

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, InfoDict, RedisError, RedisResult, ServerErrorKind};
use tracing::warn;

use super::durable::Wait;
use super::error::OpenError;
use super::health::{POLICY, SAFE};
use super::keys::{Keys, Namespace, slot_of};
use super::map::Server;
use super::reach::{Reach, Tls};
use super::topology::Topology;

/// How the store is reached and what it is asked for.
#[derive(Clone)]
pub struct Options {
    /// One server (`redis://`, `rediss://` with TLS, `redis+unix:///path?db=0`), Sentinels
    /// (`redis-sentinel://host,host/name`) or a cluster (`redis-cluster://host,host`). May hold a
    /// password: never shown.
    pub url: String,
    pub namespace: Namespace,
    /// What the namespace is for (upstream and era): written at first use, and whoever comes with
    /// another text later is refused. `None` does not ask.
    pub serves: Option<String>,
    /// Go on although the server may evict tasks.
    pub allow_eviction: bool,
    /// For `rediss://`: whom to trust instead of the machine's roots, and who we are.
    pub tls: Tls,
    /// How long one command may take before it is in doubt.
    pub command_timeout: Duration,
    /// What must be done with a durable write before it is told of; `None`: nothing more.
    pub wait: Option<Wait>,
    /// Between two looks at what was checked at open and may have changed.
    pub check_interval: Duration,
}

impl Options {
    pub fn new(url: impl Into<String>, namespace: Namespace) -> Self {
        Self {
            url: url.into(),
            namespace,
            serves: None,
            allow_eviction: false,
            tls: Tls::default(),
            command_timeout: Duration::from_millis(500),
            wait: None,
            check_interval: Duration::from_mins(1),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("namespace", &self.namespace)
            .field("serves", &self.serves)
            .field("allow_eviction", &self.allow_eviction)
            .field("command_timeout", &self.command_timeout)
            .finish_non_exhaustive()
    }
}

/// Looks at every server before the first task, and takes the namespace.
pub(super) async fn examine_all(
    topology: &Topology,
    keys: &Keys,
    options: &Options,
) -> Result<(), OpenError> {
    let (mut connection, server) = examine_servers(topology, keys, options).await?;
    claim(&mut connection, &server, keys, options).await
}

/// Looks at every server. A connection to the one that knows whose the namespace is, and its name.
pub(super) async fn examine_servers(
    topology: &Topology,
    keys: &Keys,
    options: &Options,
) -> Result<(MultiplexedConnection, String), OpenError> {
    let map = topology.map();
    for server in &map.servers {
        let mut connection = connect(topology.reach(), server).await?;
        examine(
            &mut connection,
            &server.name,
            options,
            topology.is_cluster(),
        )
        .await?;
        try_scripts(&mut connection, &server.name).await?;
        if let Some(wait) = options.wait {
            try_wait(&mut connection, &server.name, wait).await?;
        }
    }
    let server = map
        .server_of(slot_of(keys.meta()))
        .ok_or(OpenError::NoSlots)?;
    let connection = connect(topology.reach(), server).await?;
    Ok((connection, server.name.clone()))
}

/// Connects once, so that a wrong address or password is told now and not at the first task.
async fn connect(reach: &Reach, server: &Server) -> Result<MultiplexedConnection, OpenError> {
    let unreachable = |cause| OpenError::Unreachable {
        server: server.name.clone(),
        cause,
    };
    let mut connection = reach.connect(&server.client).await.map_err(unreachable)?;
    redis::cmd("PING")
        .exec_async(&mut connection)
        .await
        .map_err(unreachable)?;
    Ok(connection)
}

/// Refuses a server that cannot keep tasks; warns of one that may lose them.
async fn examine(
    connection: &mut MultiplexedConnection,
    server: &str,
    options: &Options,
    is_cluster: bool,
) -> Result<(), OpenError> {
    let server = server.to_owned();
    let info: InfoDict = match redis::cmd("INFO").query_async(connection).await {
        Ok(info) => info,
        Err(cause) if denied(&cause) => {
            warn!(
                server,
                "INFO is denied: version and eviction policy were not checked"
            );
            return Ok(());
        }
        Err(cause) => return Err(OpenError::Unreachable { server, cause }),
    };
    let version: String = info.get("redis_version").unwrap_or_default();
    if !new_enough(&version) {
        return Err(OpenError::TooOld { server, version });
    }
    if !is_cluster && info.get::<u8>("cluster_enabled") == Some(1) {
        return Err(OpenError::Cluster { server });
    }
    if info
        .get::<String>("role")
        .is_some_and(|role| role != "master")
    {
        return Err(OpenError::Replica { server });
    }
    // Not by CONFIG, which managed services deny.
    judge_policy(info.get(POLICY), server.clone(), options)?;
    let append_only = info.get::<u8>("aof_enabled") == Some(1);
    if !append_only
        && setting(connection, "save")
            .await
            .is_none_or(|save| save.is_empty())
    {
        warn!(
            server,
            "Redis keeps nothing on disk: its restart loses every task"
        );
    }
    Ok(())
}

fn judge_policy(
    policy: Option<String>,
    server: String,
    options: &Options,
) -> Result<(), OpenError> {
    match policy {
        Some(policy) if policy == SAFE => Ok(()),
        Some(policy) if options.allow_eviction => {
            warn!(server, policy, "Redis may evict tasks, as was allowed");
            Ok(())
        }
        Some(policy) => Err(OpenError::Eviction { server, policy }),
        None => {
            warn!(
                server,
                "the eviction policy cannot be read; it must be noeviction"
            );
            Ok(())
        }
    }
}

/// Scripts run: shown with one of ours that writes nothing here.
async fn try_scripts(
    connection: &mut MultiplexedConnection,
    server: &str,
) -> Result<(), OpenError> {
    let mut command = redis::cmd("EVAL");
    command.arg("return redis.call('TIME')").arg(0);
    command
        .exec_async(connection)
        .await
        .map_err(|cause| OpenError::Scripts {
            server: server.to_owned(),
            cause,
        })
}

/// What is to be waited for can be had here.
async fn try_wait(
    connection: &mut MultiplexedConnection,
    server: &str,
    wait: Wait,
) -> Result<(), OpenError> {
    let server = server.to_owned();
    if wait.aof {
        // Nothing was written here yet: this returns at once, or says why it never would.
        let mut command = redis::cmd("WAITAOF");
        command.arg(1).arg(0).arg(1);
        if let Err(cause) = command.exec_async(connection).await {
            return Err(OpenError::WaitAof { server, cause });
        }
    }
    if wait.replicas == 0 {
        return Ok(());
    }
    let mut command = redis::cmd("INFO");
    let info: RedisResult<InfoDict> = command.arg("replication").query_async(connection).await;
    let connected = match info {
        Ok(info) => info.get("connected_slaves").unwrap_or_default(),
        Err(cause) if denied(&cause) => return Ok(()),
        Err(cause) => return Err(OpenError::Unreachable { server, cause }),
    };
    if connected < wait.replicas {
        return Err(OpenError::WaitReplicas {
            server,
            connected,
            wanted: wait.replicas,
        });
    }
    Ok(())
}

/// Takes the namespace for what we serve, or learns whose it is.
async fn claim(
    connection: &mut MultiplexedConnection,
    server: &str,
    keys: &Keys,
    options: &Options,
) -> Result<(), OpenError> {
    let namespace = options.namespace.clone();
    let unreachable = |cause| OpenError::Unreachable {
        server: server.to_owned(),
        cause,
    };
    let ours = keys.count().to_string();
    let theirs = settle(connection, keys, "buckets", &ours)
        .await
        .map_err(unreachable)?;
    if theirs != ours {
        return Err(OpenError::Buckets {
            namespace,
            theirs,
            ours,
        });
    }
    let Some(ours) = &options.serves else {
        return Ok(());
    };
    let theirs = settle(connection, keys, "serves", ours)
        .await
        .map_err(unreachable)?;
    if theirs != *ours {
        return Err(OpenError::Foreign {
            namespace,
            meta: keys.meta().to_owned(),
            theirs,
            ours: ours.clone(),
        });
    }
    Ok(())
}

/// What stands in the namespace's own hash: what we say if nobody was before us.
async fn settle(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    field: &str,
    ours: &str,
) -> RedisResult<String> {
    let mut set = redis::cmd("HSETNX");
    set.arg(keys.meta())
        .arg(field)
        .arg(ours)
        .exec_async(connection)
        .await?;
    redis::cmd("HGET")
        .arg(keys.meta())
        .arg(field)
        .query_async(connection)
        .await
}

/// `None` where the server does not let us ask.
async fn setting(connection: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    let asked: RedisResult<Vec<String>> =
        command.arg("GET").arg(name).query_async(connection).await;
    asked.ok()?.into_iter().nth(1)
}

fn denied(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

fn new_enough(version: &str) -> bool {
    let mut parts = version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    version >= (6, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for right in ["6.2.0", "6.10.1", "7.0.15", "10.0"] {
            assert!(new_enough(right), "{right}");
        }
        for wrong in ["6.0.16", "5.0.14", "", "x"] {
            assert!(!new_enough(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let namespace = Namespace::parse("ns").unwrap();
        let options = Options::new("redis://:hunter2@127.0.0.1:x/", namespace);
        let refused = Reach::new(Tls::default())
            .server(&options.url, 0)
            .map(drop)
            .unwrap_err();
        let shown = format!("{options:?} {refused} {refused:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
