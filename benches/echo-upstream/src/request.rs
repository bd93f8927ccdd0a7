//! What a client sends, as far as this server reads it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A JSON-RPC message. A notification has no id.
#[derive(Debug, Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: &'a str,
    #[serde(borrow)]
    pub(crate) params: Option<Params<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Params<'a> {
    pub(crate) name: Option<&'a str>,
    #[serde(default)]
    pub(crate) arguments: ToolArguments,
    #[serde(borrow, rename = "_meta")]
    pub(crate) meta: Option<Meta<'a>>,
    /// Of `initialize`.
    pub(crate) protocol_version: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta<'a> {
    #[serde(borrow)]
    pub(crate) progress_token: Option<&'a RawValue>,
}

/// The arguments of all tools together.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ToolArguments {
    pub(crate) nonce: String,
    /// How long `slow` takes.
    pub(crate) ms: u64,
    /// How many events `stream` sends.
    pub(crate) n: u64,
    pub(crate) interval_ms: u64,
    /// How many bytes follow the nonce in the result of `big`.
    pub(crate) bytes: usize,
    /// How many bytes make each event of `stream` longer.
    pub(crate) pad: usize,
}
