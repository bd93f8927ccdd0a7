//! `_meta["io.modelcontextprotocol/relatedTaskIds"]`: a client names its tasks to which a request is related. The ids
//! of raincheck's tasks never reach the server, because an id is the only secret of a caller without credentials. The
//! record of a call keeps those that are the caller's own, for operators.
//!
//! A message of a session is searched as raincheck reads it. In a body that is compressed or in another encoding
//! (UTF-7) according to its headers, an id is not found. Sessions pass byte for byte, so such a body is refused only
//! where a rule may refuse a call ([`super::strict`]).
//!
//! A request that joins a running call adds none. The tasks that it names may be cancelled with all that names them, and
//! that would end the call for the clients that named nothing.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::HeaderMap;
use hyper::header::CONTENT_LENGTH;

use super::inbound::request::LegacyMessage;
use super::inbound::requester::Requester;
use super::proxy::Proxy;
use super::tasks::service::STORE_IS_AWAY;
use crate::mcp::error::RpcError;
use crate::mcp::meta::{may_name_tasks, related_task_ids, with_related_task_ids};
use crate::mcp::request::Request;
use crate::task::id::{Caller, TaskId};

/// The number of different ids that are looked at. Servers may drop further ids.
const IDS_MAX: usize = 16;

/// The number of ids that the record of a call keeps.
const RELATED_MAX: usize = 8;

/// A message without the ids of raincheck's tasks.
pub(super) struct RedactedBody {
    pub(super) body: Bytes,
    /// The tasks of the caller among them.
    pub(super) related: Vec<TaskId>,
}

/// The result for a message that may name tasks.
pub(super) enum Hidden {
    /// It names none.
    Nothing,
    Edited(RedactedBody),
    Refused(RpcError),
}

/// Whose task an id names.
enum Named {
    OfCaller(TaskId),
    /// A task of raincheck that the caller does not have. It may be one where the store does not answer.
    OfOther,
    NotOurs,
}

impl Proxy {
    /// The message without the ids of raincheck's tasks. `None`: the message names no tasks.
    pub(super) async fn without_our_ids(
        &self,
        by: &Requester,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Option<RedactedBody> {
        let mut ids = related_task_ids(&request.params)?;
        // A task that is named many times must not take the places of the others.
        let mut seen = HashSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        ids.truncate(IDS_MAX);
        let passes = self.settings.pass_native_tasks;
        let (mut kept, mut related) = (Vec::new(), Vec::new());
        // Without this setting no id reaches the server, and only calls have records.
        if passes || request.method == "tools/call" {
            let mut looks = Vec::new();
            for id in &ids {
                looks.push(self.named(id, &by.caller));
            }
            // All at once: a store that is away delays the request by one patience, and not by one for each id.
            let found = join_all(looks).await;
            for (text, named) in ids.into_iter().zip(found) {
                match named {
                    Named::OfCaller(id) => related.push(id),
                    Named::NotOurs if passes => kept.push(text),
                    Named::OfOther | Named::NotOurs => {}
                }
            }
        }
        related.truncate(RELATED_MAX);
        edited(body, &kept, related)
    }

    /// Edits a message of a legacy session, so that the server does not see the ids of raincheck's tasks.
    pub(super) async fn hide_our_ids(
        &self,
        by: &Requester,
        body: &Bytes,
        message: &LegacyMessage<'_>,
    ) -> Hidden {
        let edited = match message {
            LegacyMessage::Request(request) => self.without_our_ids(by, body, request).await,
            LegacyMessage::Notification(_, params) if related_task_ids(params).is_some() => {
                edited(body, &[], Vec::new())
            }
            // It passes as it is, so it must not name tasks to any reader.
            LegacyMessage::Unclear(_) if may_name_tasks(body) => {
                return Hidden::Refused(RpcError::invalid_request(
                    "Invalid request: it names tasks, and cannot be read for certain",
                ));
            }
            LegacyMessage::Notification(..)
            | LegacyMessage::Answer(..)
            | LegacyMessage::Unclear(_) => None,
        };
        edited.map_or(Hidden::Nothing, Hidden::Edited)
    }

    async fn named(&self, id: &str, caller: &Caller) -> Named {
        // In another spelling it names no task, and the server could still read the id.
        let named = TaskId::parse(id);
        let Some(id) = TaskId::in_any_spelling(id) else {
            return Named::NotOurs;
        };
        let found = tokio::time::timeout(STORE_IS_AWAY, self.runner.ledger().load(id)).await;
        match found {
            Ok(Ok(None)) => Named::NotOurs,
            Ok(Ok(Some(loaded)))
                if named.is_some() && loaded.task.announced && loaded.task.caller == *caller =>
            {
                Named::OfCaller(id)
            }
            // A store that does not answer leaves open whose the id is, so the server must not see it.
            Ok(Ok(Some(_)) | Err(_)) | Err(_) => Named::OfOther,
        }
    }
}

/// The message with these ids in place of all that it names.
fn edited(body: &Bytes, ids: &[String], related: Vec<TaskId>) -> Option<RedactedBody> {
    let text = std::str::from_utf8(body).ok()?;
    let body = with_related_task_ids(text, ids).ok().map(Bytes::from)?;
    Some(RedactedBody { body, related })
}

/// Removes the length of a body that was changed.
pub(super) fn forget_length(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
}
