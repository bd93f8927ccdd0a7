//! The server's list of tools, and what it says of one of them.

use std::sync::Arc;
use std::time::Duration;

use super::inbound::requester::Requester;
use super::proxy::Shared;
use crate::mcp::tools::{Tool, Tools};

/// How long a call waits for the server's list of tools.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server's tools, as a client with these capabilities may see them. `None`: the list cannot be had now.
pub(super) async fn listed(
    front: &Shared,
    by: &Requester,
    capabilities: &str,
) -> Option<Arc<Tools>> {
    let caller = *by.caller.as_bytes();
    let listing = front
        .upstream
        .tools(caller, by.credentials.clone(), capabilities.into());
    let listed = tokio::time::timeout(PATIENCE, listing).await;
    listed.ok().and_then(Result::ok)
}

/// What the server says of a tool, as far as it counts here.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Known {
    pub(super) repeatable: bool,
    pub(super) requires_task: bool,
}

impl Known {
    pub(super) fn of(tool: &Tool) -> Self {
        Self {
            repeatable: tool.repeatable,
            requires_task: tool.requires_task(),
        }
    }
}
