//! Checks before the first task that the servers can keep tasks.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, InfoDict, RedisError, RedisResult};
use tracing::warn;

use super::address::Target;
use super::connector::{RedisConnector, RedisTls};
use super::durable::Wait;
use super::error::{RedisOpenError, denied, unknown};
use super::health::{POLICY, SAFE};
use super::keys::{BUCKETS, Keys, Namespace, slot_of};
use super::map::RedisServer;
use super::rights::try_commands;
use super::topology::Topology;

/// Where the store is, and what it must provide.
#[derive(Clone)]
pub struct RedisOptions {
    /// One server (`redis://`, `rediss://` with TLS, `redis+unix:///path?db=0`), Sentinels
    /// (`redis-sentinel://host,host/name`) or a cluster (`redis-cluster://host,host`). May hold a
    /// password: never shown.
    pub url: String,
    pub namespace: Namespace,
    /// The server that the namespace serves. The first store writes this text, and a later store with another text is
    /// refused. `None` skips the check.
    pub serves: Option<String>,
    /// Accept a server that may evict tasks.
    pub allow_eviction: bool,
    /// For `rediss://`: the certificates to trust instead of the machine's, and our own.
    pub tls: RedisTls,
    /// The time that one command may take before it is in doubt.
    pub command_timeout: Duration,
    /// The confirmation that durable writes wait for, or `None` for the server's answer alone.
    pub wait: Option<Wait>,
    /// The time between two checks of what was checked at open and may have changed.
    pub check_interval: Duration,
}

impl RedisOptions {
    pub fn new(url: impl Into<String>, namespace: Namespace) -> Self {
        Self {
            url: url.into(),
            namespace,
            serves: None,
            allow_eviction: false,
            tls: RedisTls::default(),
            command_timeout: Duration::from_millis(500),
            wait: None,
            check_interval: Duration::from_mins(1),
        }
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("namespace", &self.namespace)
            .field("serves", &self.serves)
            .field("allow_eviction", &self.allow_eviction)
            .field("command_timeout", &self.command_timeout)
            .finish_non_exhaustive()
    }
}

/// Finds the servers of the options' URL, and the keys of the namespace there.
pub(super) async fn find(options: &RedisOptions) -> Result<(Topology, Keys), RedisOpenError> {
    let target = Target::parse(&options.url).ok_or(RedisOpenError::Url)?;
    let topology = Topology::find(target, RedisConnector::new(options.tls.clone())).await?;
    let buckets = if topology.is_cluster() { BUCKETS } else { 1 };
    let keys = Keys::new(&options.namespace, buckets);
    Ok((topology, keys))
}

/// Examines every server and claims the namespace.
pub(super) async fn examine_all(
    topology: &Topology,
    keys: &Keys,
    options: &RedisOptions,
) -> Result<(), RedisOpenError> {
    let (mut connection, server) = examine_servers(topology, keys, options).await?;
    claim(&mut connection, &server, keys, options).await
}

/// Examines every server. Returns a connection to the server with the namespace's own hash, and that server's name.
pub(super) async fn examine_servers(
    topology: &Topology,
    keys: &Keys,
    options: &RedisOptions,
) -> Result<(MultiplexedConnection, String), RedisOpenError> {
    let map = topology.map();
    for server in &map.servers {
        let mut connection = connect(topology.connector(), server).await?;
        examine(
            &mut connection,
            &server.name,
            options,
            topology.is_cluster(),
        )
        .await?;
        let never = keys.never();
        // Of a cluster's nodes one has the key, and the others refuse a script that names it.
        let named = Some(&*never).filter(|_| !topology.is_cluster());
        try_scripts(&mut connection, &server.name, named).await?;
        try_commands(&mut connection, &server.name, &never, named).await?;
        if let Some(wait) = options.wait {
            try_wait(&mut connection, &server.name, wait).await?;
        }
    }
    // On a cluster one node has the hash of the namespace.
    let server = map
        .server_of(slot_of(keys.meta()))
        .ok_or(RedisOpenError::NoSlots)?;
    let connection = connect(topology.connector(), server).await?;
    Ok((connection, server.name.clone()))
}

/// Connects once, so that a wrong address or password is reported now and not at the first task.
pub(super) async fn connect(
    connector: &RedisConnector,
    server: &RedisServer,
) -> Result<MultiplexedConnection, RedisOpenError> {
    let address = server.client.get_connection_info().addr();
    let is_tls = matches!(address, ConnectionAddr::TcpTls { .. });
    let unreachable = |cause: RedisError| {
        let server = server.name.clone();
        // A server without TLS does not answer the handshake, so the attempt ends by its timeout and not by an error.
        if is_tls && cause.is_timeout() {
            return RedisOpenError::NoTls { server, cause };
        }
        // A server that misses our certificate ends a connection that is set up already, in TLS 1.3.
        if is_tls && cause.is_connection_dropped() && !cause.is_connection_refusal() {
            return RedisOpenError::EndsTls { server, cause };
        }
        RedisOpenError::Unreachable { server, cause }
    };
    let mut connection = connector
        .connect(&server.client)
        .await
        .map_err(unreachable)?;
    // A connection without a password and a database sends no command at its start, so only a command shows a refusal.
    redis::cmd("PING")
        .exec_async(&mut connection)
        .await
        .map_err(unreachable)?;
    Ok(connection)
}

/// Refuses a server that cannot keep tasks, and warns of a server that may lose them.
async fn examine(
    connection: &mut MultiplexedConnection,
    server: &str,
    options: &RedisOptions,
    is_cluster: bool,
) -> Result<(), RedisOpenError> {
    let server = server.to_owned();
    let info: InfoDict = match redis::cmd("INFO").query_async(connection).await {
        Ok(info) => info,
        Err(cause) if denied(&cause) || unknown(&cause) => {
            warn!(
                server,
                "INFO is denied: version and eviction policy were not checked"
            );
            return Ok(());
        }
        Err(cause) => return Err(RedisOpenError::Unreachable { server, cause }),
    };
    // A Sentinel answers INFO as a server does, and no check below would refuse it.
    let mode = info.get::<String>("redis_mode");
    // As Valkey names it.
    let mode = mode.or_else(|| info.get("server_mode"));
    if mode.as_deref() == Some("sentinel") {
        return Err(RedisOpenError::IsSentinel { server });
    }
    let version: String = info.get("redis_version").unwrap_or_default();
    if !new_enough(&version) {
        return Err(RedisOpenError::TooOld { server, version });
    }
    if !is_cluster && info.get::<u8>("cluster_enabled") == Some(1) {
        return Err(RedisOpenError::Cluster { server });
    }
    if info
        .get::<String>("role")
        .is_some_and(|role| role != "master")
    {
        return Err(RedisOpenError::Replica { server });
    }
    // INFO has the policy too, and managed services deny CONFIG.
    check_policy(info.get(POLICY), server.clone(), options)?;
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

fn check_policy(
    policy: Option<String>,
    server: String,
    options: &RedisOptions,
) -> Result<(), RedisOpenError> {
    match policy {
        Some(policy) if policy == SAFE => Ok(()),
        Some(policy) if options.allow_eviction => {
            warn!(
                server,
                policy, "Redis may evict tasks, which store.allow_eviction allows"
            );
            Ok(())
        }
        Some(policy) => Err(RedisOpenError::Eviction { server, policy }),
        None => {
            warn!(
                server,
                "the eviction policy cannot be read; it must be noeviction"
            );
            Ok(())
        }
    }
}

/// Tests that scripts run, with a script that writes nothing. `key`: proxies refuse a script without one.
async fn try_scripts(
    connection: &mut MultiplexedConnection,
    server: &str,
    key: Option<&str>,
) -> Result<(), RedisOpenError> {
    let mut command = redis::cmd("EVAL");
    command
        .arg("return 1")
        .arg(usize::from(key.is_some()))
        .arg(key);
    command.exec_async(connection).await.map_err(|cause| {
        let server = server.to_owned();
        // The user may run scripts, and not touch the keys of the namespace.
        let detail = cause.detail().unwrap_or_default();
        // Redis 7: "no permissions to access one of the keys"; Redis 8 and Valkey: "No permissions to access a key".
        let is_of_keys = detail.contains("permissions to access");
        if denied(&cause) && is_of_keys {
            return RedisOpenError::Unreachable { server, cause };
        }
        RedisOpenError::Scripts { server, cause }
    })
}

/// Tests that the server can give the confirmation that `wait` asks for.
async fn try_wait(
    connection: &mut MultiplexedConnection,
    server: &str,
    wait: Wait,
) -> Result<(), RedisOpenError> {
    let server = server.to_owned();
    if wait.aof {
        // Nothing was written on this connection yet, so this returns at once or fails with the reason.
        let mut command = redis::cmd("WAITAOF");
        command.arg(1).arg(0).arg(1);
        if let Err(cause) = command.exec_async(connection).await {
            return Err(RedisOpenError::WaitAof { server, cause });
        }
    }
    if wait.replicas == 0 {
        return Ok(());
    }
    // Of no replica there is nothing to wait for.
    let mut command = redis::cmd("WAIT");
    command.arg(0).arg(1);
    if let Err(cause) = command.exec_async(connection).await
        && denied(&cause)
    {
        let missing = "+wait".to_owned();
        return Err(RedisOpenError::Denied { server, missing });
    }
    let mut command = redis::cmd("INFO");
    let info: RedisResult<InfoDict> = command.arg("replication").query_async(connection).await;
    let connected = match info {
        Ok(info) => info.get("connected_slaves").unwrap_or_default(),
        // Without the right to INFO the replicas cannot be counted. A write that too few confirm is in doubt then.
        Err(cause) if denied(&cause) || unknown(&cause) => return Ok(()),
        Err(cause) => return Err(RedisOpenError::Unreachable { server, cause }),
    };
    if connected < wait.replicas {
        return Err(RedisOpenError::WaitReplicas {
            server,
            connected,
            wanted: wait.replicas,
        });
    }
    Ok(())
}

/// Claims the namespace for the server that we serve, or fails because another server has it.
async fn claim(
    connection: &mut MultiplexedConnection,
    server: &str,
    keys: &Keys,
    options: &RedisOptions,
) -> Result<(), RedisOpenError> {
    let namespace = options.namespace.clone();
    let unreachable = |cause| RedisOpenError::Unreachable {
        server: server.to_owned(),
        cause,
    };
    let ours = keys.count().to_string();
    let theirs = settle(connection, keys, "buckets", &ours)
        .await
        .map_err(unreachable)?;
    if theirs != ours {
        return Err(RedisOpenError::Buckets {
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
        return Err(RedisOpenError::Foreign {
            namespace,
            theirs,
            ours: ours.clone(),
        });
    }
    Ok(())
}

/// Sets a field of the namespace's own hash unless it exists. Returns the stored value.
async fn settle(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    field: &str,
    ours: &str,
) -> RedisResult<String> {
    let mut get = redis::cmd("HGET");
    get.arg(keys.meta()).arg(field);
    // First, because a full server answers this, and lets nobody write.
    let found: Option<String> = get.query_async(connection).await?;
    if let Some(found) = found {
        return Ok(found);
    }
    let mut set = redis::cmd("HSETNX");
    set.arg(keys.meta())
        .arg(field)
        .arg(ours)
        .exec_async(connection)
        .await?;
    // Of several first stores one sets the field, and the others get its value here.
    get.query_async(connection).await
}

/// A field of the namespace's own hash, or `None` if no store was ever opened there.
pub(super) async fn namespace_field(
    connection: &mut MultiplexedConnection,
    server: &str,
    keys: &Keys,
    field: &str,
) -> Result<Option<String>, RedisOpenError> {
    let mut get = redis::cmd("HGET");
    get.arg(keys.meta()).arg(field);
    let found = get.query_async(connection).await;
    found.map_err(|cause| RedisOpenError::Unreachable {
        server: server.to_owned(),
        cause,
    })
}

/// A setting of the server, or `None` if CONFIG is denied.
async fn setting(connection: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    let asked: RedisResult<Vec<String>> =
        command.arg("GET").arg(name).query_async(connection).await;
    asked.ok()?.into_iter().nth(1)
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
        let options = RedisOptions::new("redis://:hunter2@127.0.0.1:x/", namespace);
        let refused = RedisConnector::new(RedisTls::default())
            .server(&options.url, 0)
            .map(drop)
            .unwrap_err();
        let shown = format!("{options:?} {refused} {refused:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
