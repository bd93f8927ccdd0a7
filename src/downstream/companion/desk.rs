//! Where one caller's tickets are taken: which tools are ours, and what the server says of its own.

use std::sync::Arc;

use super::state::Companion;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Shared;
use crate::downstream::tools::{self, Known};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::runner::Announce;
use crate::task::policy::{InputWhen, Plan, Rule, with_companion};
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
        // Without the list, neither raincheck nor the client can know of a name that clashes.
        let tools = tools::listed(front, by, capabilities).await;
        let is_taken = |name: &str| {
            tools
                .as_ref()
                .is_some_and(|tools| tools.get(name).is_some())
        };
        let names = CompanionNames::free(&companion.prefix, is_taken)?;
        Some(Self {
            front,
            companion,
            by,
            names,
            tools,
        })
    }

    /// The tool of ours that has this name.
    pub(in crate::downstream) fn tool(&self, name: &str) -> Option<CompanionTool> {
        self.names.tool(name)
    }

    /// What the server says of a tool of its own.
    pub(in crate::downstream) fn known(&self, tool: &str) -> Known {
        let known = self.tools.as_ref().and_then(|tools| tools.get(tool));
        known.map(Known::of).unwrap_or_default()
    }

    /// How a call of a tool of the server's is carried.
    pub(in crate::downstream) fn plan(&self, rule: &Rule) -> Plan {
        with_companion(
            rule,
            match self.by.era {
                // Its client answers by coming back.
                Era::Modern => InputWhen::BeforeTask,
                Era::Legacy => InputWhen::InTask,
            },
        )
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
