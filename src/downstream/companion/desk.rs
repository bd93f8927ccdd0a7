//! Where one caller's tickets are taken: which tools are ours, and what the server says of its own.

use std::sync::Arc;

use super::state::Companion;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Shared;
use crate::downstream::tools;
use crate::mcp::tools::Tools;
use crate::runner::Announce;
use crate::task::ticket::{CompanionNames, CompanionTool, Ticket};

/// Where one caller's tickets are taken.
pub(in crate::downstream) struct Desk<'a> {
    pub(super) front: &'a Shared,
    pub(super) companion: &'a Companion,
    pub(super) by: &'a Requester,
    pub(super) names: CompanionNames,
    tools: Option<Arc<Tools>>,
}

impl<'a> Desk<'a> {
    /// For a client that can be asked what its capabilities say. `None`: there are no companion tools, or the
    /// server has tools of all our names.
    pub(in crate::downstream) async fn open(
        front: &'a Shared,
        by: &'a Requester,
        capabilities: &str,
    ) -> Option<Self> {
        let companion = front.companion.as_ref()?;
        let tools = tools::listed(front, by, capabilities).await;
        let names = companion.names(tools.as_deref())?;
        Some(Self {
            tools,
            ..Self::of(front, by, companion, names)
        })
    }

    /// Where our tools have these names.
    pub(in crate::downstream) fn of(
        front: &'a Shared,
        by: &'a Requester,
        companion: &'a Companion,
        names: CompanionNames,
    ) -> Self {
        Self {
            front,
            companion,
            by,
            names,
            tools: None,
        }
    }

    /// The tool of ours that has this name.
    pub(in crate::downstream) fn tool(&self, name: &str) -> Option<CompanionTool> {
        self.names.tool(name)
    }

    /// The server calls a tool of its own safe to repeat.
    pub(in crate::downstream) fn is_repeatable(&self, tool: &str) -> bool {
        let tool = self.tools.as_ref().and_then(|tools| tools.get(tool));
        tool.is_some_and(|tool| tool.repeatable)
    }

    /// How the client hears that its call became a task.
    pub(in crate::downstream) fn announce(&self) -> Announce {
        Announce::Ticket(Ticket {
            names: self.names.clone(),
            client_era: self.by.era,
            takes_large_events: self.by.takes_large_events,
        })
    }
}
