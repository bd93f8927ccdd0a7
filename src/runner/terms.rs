//! How one client waits for a call that has a record: what the client is told, when, and in which form.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::call::{Announce, CallSpec};
use crate::mcp::version::Era;
use crate::task::policy::{InputWhen, Plan};
use crate::task::ticket::Ticket;
use crate::upstream::UpstreamError;

/// How one client waits.
#[derive(Debug)]
pub(super) struct FollowTerms {
    /// After how long the client is told of a task, and how; `None`: never.
    pub(super) announce: Option<(Duration, Announce)>,
    /// Whether the client is asked before it is told of a task.
    pub(super) input: InputWhen,
    /// The era of the client. A legacy client is asked while it waits.
    pub(super) client_era: Era,
    pub(super) progress_token: Option<Box<RawValue>>,
    /// The capabilities that the client declares. `None`: this client made the call, so the server knows them
    /// already.
    pub(super) declared: Option<Arc<str>>,
    /// Tells the client that made the call what no record keeps: that the server refused its
    /// credentials.
    pub(super) unauthorized: Option<oneshot::Receiver<UpstreamError>>,
}

impl FollowTerms {
    /// For a client that is told of the end or the next question, and never of a task.
    pub(super) fn held() -> Self {
        Self {
            announce: None,
            input: InputWhen::BeforeTask,
            client_era: Era::Modern,
            progress_token: None,
            declared: None,
            unauthorized: None,
        }
    }

    /// For a client that waits for `patience`, and then gets a ticket.
    pub(super) fn by_ticket(patience: Duration, ticket: Ticket) -> Self {
        Self {
            announce: Some((patience, Announce::Ticket(ticket))),
            ..Self::held()
        }
    }

    pub(super) fn of(call: &CallSpec, start_allowance: Duration) -> Self {
        let input = match call.plan {
            Plan::Held | Plan::Refuse => InputWhen::BeforeTask,
            Plan::Auto { input, .. } | Plan::Always { input } => input,
        };
        let after = call.window(start_allowance);
        Self {
            announce: after.map(|after| (after, call.announce.clone())),
            input,
            client_era: call.client_era,
            progress_token: call.progress_token.clone(),
            declared: Some(Arc::clone(&call.outgoing.capabilities)),
            unauthorized: None,
        }
    }

    pub(super) fn are_a_task_at_once(&self) -> bool {
        matches!(&self.announce, Some((Duration::ZERO, Announce::Task)))
    }

    pub(super) fn first(self, unauthorized: oneshot::Receiver<UpstreamError>) -> Self {
        Self {
            declared: None,
            unauthorized: Some(unauthorized),
            ..self
        }
    }
}
