//! Progress of a task under the progress token of its request, on any replica. The token stays valid for as long
//! as the task runs (2025-11-25, Tasks, Task Progress Notifications).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::mcp::envelope;
use crate::mcp::json::{Object, Writer, raw};
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::tasks_2025::related_meta;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::task::id::TaskId;
use crate::task::progress::Progress;
use crate::task::state::Task;

/// Longer tokens are ignored.
const TOKEN_BYTES_MAX: usize = 1024;

/// The token of a request that asks for progress.
pub(super) fn token(params: &Object<'_>) -> Option<Box<RawValue>> {
    let meta = params.get_object("_meta")?;
    let token = meta.get(PROGRESS_TOKEN)?;
    (token.get().len() <= TOKEN_BYTES_MAX).then(|| token.to_owned())
}

/// A task as one session reads it. Sessions that share a task by its key have a token each.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskReader {
    pub(super) task: TaskId,
    /// `None`: the request named no session.
    pub(super) by: Option<SessionKey>,
}

impl TaskReader {
    fn token(&self) -> Name {
        let task = self.task.to_string();
        match self.by {
            Some(session) => {
                let session = Uuid::from_bytes(*session.as_bytes()).to_string();
                Name::of(Kind::Token, &[&task, &session])
            }
            None => Name::of(Kind::Token, &[&task]),
        }
    }
}

/// Stores the token for every replica. Without a token the client polls the progress.
pub(super) async fn remember(
    proxy: &Arc<Proxy>,
    reader: TaskReader,
    token: &RawValue,
    lifetime: Duration,
) {
    let value = Bytes::copy_from_slice(token.get().as_bytes());
    // Dropped, because progress is optional and must not fail a task that exists.
    let _ = proxy.kv.put(reader.token(), value, lifetime).await;
}

/// The progress of one task that one session was notified of.
#[derive(Debug)]
pub(super) struct ToldProgress {
    /// `None`: the request asked for no progress.
    token: Option<Box<RawValue>>,
    last: Option<Progress>,
}

impl ToldProgress {
    pub(super) async fn of(proxy: &Arc<Proxy>, reader: TaskReader) -> Result<Self, StoreError> {
        let found = proxy.kv.find(reader.token()).await?;
        let text = found.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
        Ok(Self {
            token: text.and_then(|text| raw(text).ok()),
            last: None,
        })
    }

    /// The notification of new progress. A task that has ended has none.
    pub(super) fn notification(&mut self, task: &Task) -> Option<String> {
        let token = self.token.as_ref()?;
        // Progress must grow from one notification to the next (MCP, progress), so the same progress is not sent
        // again.
        if task.is_ended() || task.progress == self.last {
            return None;
        }
        self.last.clone_from(&task.progress);
        let progress = task.progress.as_ref()?;
        let mut params = Writer::object();
        params
            .raw("progressToken", token.get())
            .number("progress", progress.progress);
        if let Some(total) = progress.total {
            params.number("total", total);
        }
        if let Some(message) = &task.status_message {
            params.str("message", message);
        }
        params.raw("_meta", &related_meta(&task.id.to_string()));
        Some(envelope::notification(
            "notifications/progress",
            &params.end(),
        ))
    }
}
