//! What the server's list of tools says of one of them, as far as it counts here.

use std::time::Duration;

use crate::mcp::tools::Tool;

/// How long a call waits for the list of tools that its headers are checked against.
pub(super) const TOOLS_PATIENCE: Duration = Duration::from_secs(5);

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
