//! The settings that the user wrote in each `[[notify]]`.

use std::time::Duration;

use serde::Deserialize;

use super::scalar::{list, names, optional, scalar};
use super::secret::Secret;

/// A receiver of webhooks.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Notify {
    #[serde(deserialize_with = "optional")]
    pub(super) url: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) secret: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) secret_file: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) secret_previous: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    pub(super) secret_previous_file: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(super) states: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) tools: Vec<String>,
    #[serde(deserialize_with = "scalar")]
    pub(super) retry_for: Duration,
    #[serde(deserialize_with = "scalar")]
    pub(super) allow_private: bool,
}

impl Default for Notify {
    fn default() -> Self {
        Self {
            url: None,
            secret: None,
            secret_file: None,
            secret_previous: None,
            secret_previous_file: None,
            states: ["completed", "failed", "cancelled", "input_required"]
                .map(str::to_owned)
                .into(),
            tools: vec!["*".into()],
            retry_for: Duration::from_mins(15),
            allow_private: false,
        }
    }
}
