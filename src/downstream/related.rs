//! `_meta["io.modelcontextprotocol/relatedTaskIds"]`: a client says which of its tasks a request is about. The ids of
//! raincheck's tasks never reach the server, because an id is the only secret of a caller without credentials.

use std::collections::HashSet;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::CONTENT_LENGTH;

use super::inbound::request::LegacyMessage;
use super::proxy::Proxy;
use super::tasks::service::STORE_IS_AWAY;
use crate::mcp::json::Object;
use crate::mcp::meta::{related_task_ids, with_related_task_ids};
use crate::task::id::TaskId;

/// How many different ids are kept. Servers may drop further ids.
const IDS_MAX: usize = 16;

impl Proxy {
    /// The message without the ids of raincheck's tasks. `None`: the message names no tasks.
    pub(super) async fn without_our_ids(&self, body: &Bytes, params: &Object<'_>) -> Option<Bytes> {
        let mut named = related_task_ids(params)?;
        let mut seen = HashSet::new();
        named.retain(|id| seen.insert(id.clone()));
        let mut kept = Vec::new();
        // Without this setting, no id reaches the server.
        if self.settings.pass_native_tasks {
            for id in named.into_iter().take(IDS_MAX) {
                if !self.is_ours(&id).await {
                    kept.push(id);
                }
            }
        }
        let text = std::str::from_utf8(body).ok()?;
        with_related_task_ids(text, &kept).ok().map(Bytes::from)
    }

    /// The message of a legacy session without the ids of raincheck's tasks. `None`: the message names no tasks.
    pub(super) async fn hide_our_ids(
        &self,
        body: &Bytes,
        message: &LegacyMessage<'_>,
    ) -> Option<Bytes> {
        let LegacyMessage::Request(request) = message else {
            return None;
        };
        // This search is cheap: it compares many bytes at a time.
        if !request.params_text.contains("relatedTaskIds") {
            return None;
        }
        self.without_our_ids(body, &request.params).await
    }

    /// Whether the store has, or may have, a task with that id, of any caller.
    async fn is_ours(&self, id: &str) -> bool {
        let Some(id) = TaskId::parse(id) else {
            return false;
        };
        let found = tokio::time::timeout(STORE_IS_AWAY, self.runner.ledger().load(id)).await;
        !matches!(found, Ok(Ok(None)))
    }
}

/// Removes the length of a body that was changed.
pub(super) fn forget_length(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
}
