//! `[store]`, as serde reads it.

use std::time::Duration;

use serde::Deserialize;

use super::file_tls::ClientTls;
use super::scalar::{optional, scalar};
use super::secret::Secret;
use super::settings_store::Seal;

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Store {
    #[serde(deserialize_with = "optional")]
    pub(super) url: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) url_file: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) namespace: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(super) read_patience: Duration,
    #[serde(deserialize_with = "scalar")]
    pub(super) create_patience: Duration,
    #[serde(deserialize_with = "scalar")]
    pub(super) allow_eviction: bool,
    #[serde(deserialize_with = "scalar")]
    pub(super) required_at_start: bool,
    #[serde(deserialize_with = "scalar")]
    pub(super) seal: Seal,
    #[serde(deserialize_with = "optional")]
    pub(super) seal_key: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) seal_key_file: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) seal_key_previous: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) seal_key_previous_file: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(super) wait_replicas: usize,
    #[serde(deserialize_with = "scalar")]
    pub(super) wait_aof: bool,
    #[serde(deserialize_with = "scalar")]
    pub(super) wait_timeout: Duration,
    pub(super) tls: ClientTls,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            namespace: None,
            read_patience: Duration::from_secs(5),
            create_patience: Duration::from_secs(2),
            allow_eviction: false,
            required_at_start: true,
            seal: Seal::Off,
            seal_key: None,
            seal_key_file: None,
            seal_key_previous: None,
            seal_key_previous_file: None,
            wait_replicas: 0,
            wait_aof: false,
            wait_timeout: Duration::from_secs(1),
            tls: ClientTls::default(),
        }
    }
}
