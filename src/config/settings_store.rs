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
    /// How long `tasks/get`, `tasks/update` and `tasks/cancel` wait for a store that is away.
    pub read_patience: Duration,
    /// How long a task's creation waits for a store that is away.
    pub create_patience: Duration,
    pub allow_eviction: bool,
    /// Whether raincheck ends if the store is not there at the start.
    pub required_at_start: bool,
    pub seal: Seal,
    /// The key that seals. A file has a key of its own beside it, which counts if there is none here.
    pub seal_key: Option<SealKey>,
    /// The earlier key: what is sealed under it can still be read.
    pub seal_key_previous: Option<SealKey>,
    pub tls: ClientTlsFiles,
    pub wait: WaitSettings,
}

/// What is encrypted in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// Sessions with the server only.
    Off,
    /// Everything that clients and servers say.
    Payloads,
}

/// What Redis must have done with a task before it counts as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitSettings {
    /// The number of Redis replicas that must have the write.
    pub replicas: usize,
    /// Whether the write must be in the append-only file, on the disk.
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
            Self::Redis { namespace, .. } => write!(f, "Redis, namespace {namespace}"),
        }
    }
}
