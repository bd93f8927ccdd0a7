//! The settings of the store that the program runs on.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::secret::{SealKey, Secret};
use super::settings_tls::ClientTlsFiles;

/// Where tasks live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    pub location: Location,
    /// The time that `tasks/get`, `tasks/update` and `tasks/cancel` wait for a store that is away.
    pub read_patience: Duration,
    /// The time that a task's creation waits for a store that is away.
    pub create_patience: Duration,
    pub allow_eviction: bool,
    /// `true` if raincheck ends if the store is not there at the start.
    pub required_at_start: bool,
    pub seal: Seal,
    /// The key that seals. A file has a key of its own beside it, which counts if there is none here.
    pub seal_key: Option<SealKey>,
    /// The earlier key: what is sealed under it can still be read.
    pub seal_key_previous: Option<SealKey>,
    pub tls: ClientTlsFiles,
    pub wait: WaitSettings,
}

/// The part of the data that is encrypted in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// Sessions with the server only.
    Off,
    /// The content of all messages of clients and servers. Data in the clear is still read.
    Mixed,
    /// The content of all messages of clients and servers. Data in the clear is refused.
    Payloads,
}

/// The confirmations of Redis that a task needs before it counts as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitSettings {
    /// The number of Redis replicas that must have the write.
    pub replicas: usize,
    /// `true` if the write must be in the append-only file, on the disk.
    pub aof: bool,
    /// After this time without confirmation, the write is in doubt.
    pub timeout: Duration,
}

impl WaitSettings {
    pub fn is_on(&self) -> bool {
        self.replicas > 0 || self.aof
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Memory,
    /// The path of the file. Its directory may not exist yet.
    Embedded(PathBuf),
    /// One of several numbered files of this name: a file that no other process uses.
    Slots(PathBuf),
    Redis {
        url: Secret,
        /// Part of every key, so that two services on one Redis do not share keys.
        namespace: String,
    },
}

impl fmt::Display for Location {
    /// Without what may be secret: the URL of a Redis may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Embedded(path) | Self::Slots(path) => write!(f, "redb:{}", path.display()),
            Self::Redis { url, namespace } => {
                let place = redis_place(url.expose());
                write!(f, "Redis at {place}, namespace {namespace}")
            }
        }
    }
}

/// The hosts and ports in the URL of a Redis, the path of its socket, or the name that Sentinels know it by. What stands before
/// the last `@`, and in the query, is secret.
fn redis_place(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') {
        // The question mark may be part of a password that is not encoded.
        return "[secret]".to_owned();
    }
    if scheme == "redis+unix" || scheme == "unix" {
        return rest.to_owned();
    }
    // A password that is not encoded may hold a slash.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_sentinel = scheme.ends_with("-sentinel");
    let usual = if is_sentinel { 26379 } else { 6379 };
    let with_port = |host: &str| {
        let name = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
        if host.is_empty() {
            format!("127.0.0.1:{usual}")
        } else if name.contains(':') {
            host.to_owned()
        } else {
            format!("{host}:{usual}")
        }
    };
    let hosts: Vec<String> = hosts.split(',').map(with_port).collect();
    let hosts = hosts.join(", ");
    match path.split('/').next() {
        Some(name) if is_sentinel => format!("{name} (Sentinels {hosts})"),
        _ => hosts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_is_named_without_its_secrets() {
        for (url, place) in [
            ("redis://cache", "cache:6379"),
            ("rediss://u:p%40@cache:1/2", "cache:1"),
            ("redis://:a/b@c@cache:1", "cache:1"),
            ("redis://[::1]", "[::1]:6379"),
            ("redis://[::1]:7/0", "[::1]:7"),
            ("redis://", "127.0.0.1:6379"),
            (
                "redis+unix:///run/redis.sock?pass=secret",
                "/run/redis.sock",
            ),
            ("redis://u:pa?ss@cache", "[secret]"),
            ("redis-cluster://u:secret@a,b:2", "a:6379, b:2"),
            (
                "redis-sentinel://u:secret@a,b:2/main/1?sentinel_password=secret",
                "main (Sentinels a:26379, b:2)",
            ),
        ] {
            let url = Secret::new(url);
            let namespace = "n".to_owned();
            let location = Location::Redis { url, namespace };
            let expected = format!("Redis at {place}, namespace n");
            assert_eq!(location.to_string(), expected);
        }
    }
}
