//! Why a Redis store could not be opened.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::keys::Namespace;
use crate::store::error::StoreError;

/// Why a Redis store could not be opened, one line for each reason. `server` never holds a password.
#[derive(Debug, thiserror::Error)]
pub enum RedisOpenError {
    #[error(
        "the Redis URL is not valid: write redis://host, redis+unix:///path, \
         redis-sentinel://host,host/name or redis-cluster://host,host (with rediss for TLS); a \
         database is a number, and a password has %2F for /, %23 for # and %40 for @"
    )]
    Url,
    #[error("no Sentinel can be reached that knows the primary {primary}")]
    Sentinels {
        primary: String,
        #[source]
        cause: RedisError,
    },
    #[error("the Sentinels know no primary {primary}: name it as sentinel.conf does")]
    NoSuchPrimary { primary: String },
    #[error("no node of the Redis cluster can be reached")]
    Nodes {
        #[source]
        cause: RedisError,
    },
    #[error("the nodes of the Redis cluster hold no slots yet: create the cluster first")]
    NoSlots,
    #[error("the certificates for Redis cannot be used")]
    Certificates(#[source] RedisError),
    #[error("Redis at {server} cannot be reached or refuses us{}", hint(.cause))]
    Unreachable {
        server: String,
        #[source]
        cause: RedisError,
    },
    #[error(
        "Redis at {server} does not answer over TLS in time: if it speaks none, write redis:// in \
         place of rediss://"
    )]
    NoTls {
        server: String,
        #[source]
        cause: RedisError,
    },
    #[error(
        "Redis at {server} ends connections over TLS: it may ask for a certificate of its clients, which store.tls.certificate and \
         store.tls.key name"
    )]
    EndsTls {
        server: String,
        #[source]
        cause: RedisError,
    },
    #[error("Redis at {server} is version {version}; 6.2 is the oldest that works")]
    TooOld { server: String, version: String },
    #[error(
        "Redis at {server} is a Sentinel, which keeps no data: write redis-sentinel://{server}/NAME, with the name of the \
         primary in sentinel.conf (with rediss-sentinel for TLS)"
    )]
    IsSentinel { server: String },
    #[error("Redis at {server} is a replica; tasks need the primary")]
    Replica { server: String },
    #[error("Redis at {server} is a node of a cluster: write redis-cluster:// in the URL")]
    Cluster { server: String },
    #[error(
        "Redis at {server} has {connected} replicas, and store.wait_replicas asks for {wanted}: \
         every task would be in doubt"
    )]
    WaitReplicas {
        server: String,
        connected: usize,
        wanted: usize,
    },
    #[error(
        "Redis at {server} cannot wait for its file (WAITAOF, Redis 7.2): unset store.wait_aof"
    )]
    WaitAof {
        server: String,
        #[source]
        cause: RedisError,
    },
    #[error("the change log in Redis cannot be read")]
    Log(#[source] StoreError),
    #[error("Redis at {server} does not let us run scripts (EVAL and EVALSHA)")]
    Scripts {
        server: String,
        #[source]
        cause: RedisError,
    },
    #[error(
        "Redis at {server} does not let its user run every command that tasks need: give it {missing} \
         (docs/operations.md, Redis, has them all)"
    )]
    Denied { server: String, missing: String },
    #[error(
        "Redis at {server} may evict tasks: its maxmemory-policy is {policy}, set noeviction (or \
         store.allow_eviction = true, and lose tasks)"
    )]
    Eviction { server: String, policy: String },
    #[error(
        "the namespace {namespace} was opened with {theirs} buckets and not with {ours} (1 on one \
         server, 64 on a cluster): choose another one"
    )]
    Buckets {
        namespace: Namespace,
        theirs: String,
        ours: String,
    },
    #[error(
        "the namespace {namespace} was used in front of {theirs}, and this is {ours}: another \
         service needs a store.namespace of its own; if it is the same service at another address, \
         say so with the same settings: raincheck store move"
    )]
    Foreign {
        namespace: Namespace,
        theirs: String,
        ours: String,
    },
    #[error("the namespace was moved by another process at the same moment: look again")]
    MovedMeanwhile,
}

impl RedisOpenError {
    /// Returns `true` if the same settings may open the store later: no server answers yet, or the servers are still
    /// starting.
    pub fn is_away(&self) -> bool {
        if let Self::Sentinels { cause, .. }
        | Self::Nodes { cause }
        | Self::NoTls { cause, .. }
        | Self::EndsTls { cause, .. }
        | Self::Unreachable { cause, .. } = self
        {
            return is_passing(cause);
        }
        if let Self::Log(error) = self {
            return error.kind() == "away";
        }
        // A failover, replicas that connect and slots that are given out change these without another setting.
        matches!(
            self,
            Self::NoSlots | Self::Replica { .. } | Self::WaitReplicas { .. }
        )
    }
}

/// Returns `true` if the user of Redis has no right to that.
pub(super) fn denied(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Returns the code of an error that a command within a script had. Servers before 7.0 put it into the text.
pub(super) fn code_in_script(error: &RedisError) -> Option<&str> {
    let detail = error.detail()?;
    let (_, of_command) = detail.rsplit_once(": -")?;
    let is_of_script = detail.contains("Error running script");
    of_command.split(' ').next().filter(|_| is_of_script)
}

/// Returns `true` if the server does not know the command, which may be renamed or turned off.
pub(super) fn unknown(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default().to_ascii_lowercase();
    detail.contains("unknown command")
}

/// Returns a hint about the probable fault in the URL.
fn hint(cause: &RedisError) -> &'static str {
    let text = cause.to_string().to_ascii_lowercase();
    if cause.code() == Some("NOAUTH") {
        " (a password stands behind a colon: redis://:PASSWORD@HOST)"
    } else if text.contains("'select'") {
        " (a URL with a database needs the right to +select)"
    } else if text.contains("causedasendentity") {
        // The text itself says what to do.
        ""
    } else if text.contains("certificate") {
        " (store.tls.roots names the certificates to trust; store.tls.certificate and store.tls.key are raincheck's own)"
    } else if cause.kind() == ErrorKind::Parse {
        " (what answers there is no Redis)"
    } else if cause.is_connection_dropped() && !cause.is_connection_refusal() {
        // A server that expects TLS closes a connection that begins without it. One without room answers and closes, and the answer
        // is lost to what was sent meanwhile.
        " (it ends new connections: rediss:// is for one that speaks TLS, and one with as many clients as its maxclients takes no more)"
    } else {
        ""
    }
}

/// Returns `true` if the command may succeed later.
fn is_passing(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};

    /// Of a script that runs too long, of too few replicas, of a full memory, and of a disk that takes no snapshot.
    const PASSING: [&str; 4] = ["BUSY", "NOREPLICAS", "OOM", "MISCONF"];
    /// Redis says this without a code, and closes the connection.
    const TOO_MANY: &str = "max number of clients";

    if error.code().is_some_and(|code| PASSING.contains(&code))
        || error
            .detail()
            .is_some_and(|detail| detail.contains(TOO_MANY))
    {
        return true;
    }

    if let ErrorKind::Server(kind) = error.kind() {
        return matches!(
            kind,
            BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain
        );
    }
    error.is_io_error() || error.is_timeout() || error.is_connection_dropped()
}
