//! `[telemetry]`, as serde reads it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::log_format::LogFormat;
use super::ratio::Ratio;
use super::scalar::{SecretText, optional, scalar};
use super::trace_protocol::TraceProtocol;

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Telemetry {
    #[serde(deserialize_with = "scalar")]
    pub(super) log: String,
    #[serde(deserialize_with = "scalar")]
    pub(super) format: LogFormat,
    #[serde(deserialize_with = "scalar")]
    pub(super) access_log: bool,
    pub(super) traces: Traces,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: "info".into(),
            format: LogFormat::Text,
            access_log: false,
            traces: Traces::default(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Traces {
    #[serde(deserialize_with = "optional")]
    pub(super) endpoint: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) protocol: Option<TraceProtocol>,
    #[serde(deserialize_with = "optional")]
    pub(super) ratio: Option<Ratio>,
    #[serde(deserialize_with = "optional")]
    pub(super) service_name: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) roots: Option<String>,
    pub(super) headers: BTreeMap<String, SecretText>,
    pub(super) header_files: BTreeMap<String, String>,
}
