//! What this proxy reads of requests and answers. The rest stays bytes.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

const TASKS: &str = "io.modelcontextprotocol/tasks";

#[derive(Debug, Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: &'a str,
    #[serde(borrow)]
    pub(crate) params: Option<Params<'a>>,
}

impl Message<'_> {
    /// Whether the client can follow tasks.
    pub(crate) fn declares_tasks(&self) -> bool {
        let meta = self.params.as_ref().and_then(|params| params.meta.as_ref());
        let capabilities = meta.and_then(|meta| meta.capabilities.as_ref());
        capabilities.is_some_and(|it| it.extensions.contains_key(TASKS))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Params<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) task_id: Option<&'a str>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<Capabilities>,
}

#[derive(Debug, Deserialize)]
struct Capabilities {
    #[serde(default)]
    #[expect(
        clippy::zero_sized_map_values,
        reason = "the members of an object have values, which nobody reads"
    )]
    extensions: HashMap<String, IgnoredAny>,
}

/// What the upstream answered.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer<'a> {
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}
