//! The settings that the user wrote in `[auth]`, and in each `[[auth.jwt]]`.

use serde::Deserialize;

use super::scalar::{list, names, optional, scalar};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Auth {
    #[serde(deserialize_with = "scalar")]
    pub(super) allow_anonymous: bool,
    #[serde(deserialize_with = "optional")]
    pub(super) tokens_file: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) client_roots: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(super) credential_headers: Vec<String>,
    pub(super) jwt: Vec<Jwt>,
}

/// An issuer of tokens.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Jwt {
    #[serde(deserialize_with = "optional")]
    pub(super) issuer: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) jwks: Option<String>,
    #[serde(deserialize_with = "names")]
    pub(super) audience: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(super) algorithms: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub(super) caller_claims: Vec<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) label_claim: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) roots: Option<String>,
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            issuer: None,
            jwks: None,
            audience: Vec::new(),
            algorithms: vec!["RS256".into(), "ES256".into()],
            caller_claims: Vec::new(),
            label_claim: None,
            roots: None,
        }
    }
}
