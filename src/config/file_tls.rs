//! The files of TLS in several sections, as serde reads them.

use serde::Deserialize;

use super::scalar::optional;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tls {
    #[serde(deserialize_with = "optional")]
    pub(super) certificate: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) key: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClientTls {
    #[serde(deserialize_with = "optional")]
    pub(super) roots: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) certificate: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) key: Option<String>,
}
