//! Before the first task: is this a server that can keep it?

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    InfoDict, IntoConnectionInfo, RedisError, RedisResult, ServerErrorKind, TlsCertificates,
};
use tracing::warn;

use super::keys::{Keys, Namespace};

/// How the store is reached and what it is asked for.
#[derive(Clone)]
pub struct Options {
    /// `redis://`, `rediss://` (TLS) or `redis+unix:///path?db=0`. May hold a password: never shown.
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
}

/// Certificates for the connection to Redis, in PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// Trusted instead of the machine's roots.
    pub roots: Option<Vec<u8>>,
    /// Certificate chain and key that we show.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
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

/// Why the store could not be opened. One line each; `server` never holds a password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the Redis URL is not valid: write redis://, rediss:// or redis+unix:///path")]
    Url,
    #[error("the certificates for Redis cannot be used")]
    Certificates(#[source] RedisError),
    #[error("Redis at {server} cannot be reached or refuses us")]
    Unreachable {
        server: String,
        #[source]
        cause: RedisError,
    },
    #[error("Redis at {server} is version {version}; 6.2 is the oldest that works")]
    TooOld { server: String, version: String },
    #[error("Redis at {server} is a replica; tasks need the primary")]
    Replica { server: String },
    #[error("Redis at {server} is a cluster; a single server or a primary is needed")]
    Cluster { server: String },
    #[error("Redis at {server} does not let us run scripts (EVAL and EVALSHA)")]
    Scripts {
        server: String,
        #[source]
        cause: RedisError,
    },
    #[error(
        "Redis at {server} may evict tasks: its maxmemory-policy is {policy}, set noeviction (or \
         allow eviction and lose tasks)"
    )]
    Eviction { server: String, policy: String },
    #[error("the namespace {namespace} has {buckets} buckets, as on a cluster: choose another one")]
    Buckets {
        namespace: Namespace,
        buckets: String,
    },
    #[error("the namespace {namespace} belongs to {theirs}, not to {ours}: choose another one")]
    Foreign {
        namespace: Namespace,
        theirs: String,
        ours: String,
    },
}

/// A client whose connections notice a dead link, and the name of its server.
pub(super) fn client(options: &Options) -> Result<(Client, String), OpenError> {
    // The first provider stands; ours is the same one. Redis-rs asks for the process's default.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // The library's own text could quote the URL, and with it the password.
    let info = options
        .url
        .as_str()
        .into_connection_info()
        .map_err(|_| OpenError::Url)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        .set_user_timeout(USER_TIMEOUT);
    let info = info.set_tcp_settings(tcp);
    let server = info.addr().to_string();
    let encrypted = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    let client = if encrypted {
        with_tls(info, &options.tls)?
    } else {
        plain(info)?
    };
    Ok((client, server))
}

fn plain(info: ConnectionInfo) -> Result<Client, OpenError> {
    Client::open(info).map_err(|_| OpenError::Url)
}

fn with_tls(info: ConnectionInfo, tls: &Tls) -> Result<Client, OpenError> {
    let identity = tls.identity.clone();
    let certificates = TlsCertificates {
        client_tls: identity.map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: tls.roots.clone(),
    };
    Client::build_with_tls(info, certificates).map_err(OpenError::Certificates)
}

/// Connects once, so that a wrong address or password is told now and not at the first task.
pub(super) async fn connect(
    client: &Client,
    server: &str,
) -> Result<MultiplexedConnection, OpenError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(super::CONNECT_TIMEOUT))
        .set_response_timeout(Some(super::CONNECT_TIMEOUT));
    let unreachable = |cause| OpenError::Unreachable {
        server: server.to_owned(),
        cause,
    };
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(unreachable)?;
    redis::cmd("PING")
        .exec_async(&mut connection)
        .await
        .map_err(unreachable)?;
    Ok(connection)
}

/// Refuses a server that cannot keep tasks; warns of one that may lose them.
pub(super) async fn examine(
    connection: &mut MultiplexedConnection,
    server: &str,
    options: &Options,
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
    if info.get::<u8>("cluster_enabled") == Some(1) {
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
        Some(policy) if policy == "noeviction" => Ok(()),
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
pub(super) async fn try_scripts(
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

/// Takes the namespace for what we serve, or learns whose it is.
pub(super) async fn claim(
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
    let buckets = settle(connection, keys, "buckets", BUCKETS)
        .await
        .map_err(unreachable)?;
    if buckets != BUCKETS {
        return Err(OpenError::Buckets { namespace, buckets });
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

/// What INFO calls the eviction policy.
pub(super) const POLICY: &str = "maxmemory_policy";

/// On a single server everything is in one bucket.
const BUCKETS: &str = "1";

/// Sent and not acknowledged for so long, a connection is taken for dead.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

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
        let shown = format!("{options:?} {}", client(&options).unwrap_err());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
