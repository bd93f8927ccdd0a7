//! Where one caller's tickets are taken: which tools are ours, and what the server says of its own.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::HeaderValue;

use super::state::Companion;
use crate::downstream::patience;
use crate::downstream::proxy::Shared;
use crate::downstream::tools::{Known, TOOLS_PATIENCE};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::runner::Announce;
use crate::task::id::Caller;
use crate::task::policy::{InputWhen, Plan, Rule, with_companion};
use crate::task::ticket::{CompanionNames, CompanionTool, Ticket};

/// Where one caller's tickets are taken.
pub(in crate::downstream) struct Desk<'a> {
    pub(super) front: &'a Shared,
    pub(super) companion: &'a Companion,
    pub(super) who: Who,
    pub(super) names: CompanionNames,
    tools: Option<Arc<Tools>>,
}

/// A caller, and how it is spoken to.
#[derive(Clone)]
pub(in crate::downstream) struct Who {
    pub(in crate::downstream) caller: Caller,
    pub(in crate::downstream) credentials: Option<HeaderValue>,
    pub(in crate::downstream) capabilities: Arc<str>,
    /// Whose words it speaks.
    pub(in crate::downstream) client_era: Era,
}

impl Who {
    /// The server's tools, as this caller may see them. `None`: the list cannot be had now.
    pub(in crate::downstream) async fn tools(&self, front: &Shared) -> Option<Arc<Tools>> {
        let listed = front.upstream.tools(
            *self.caller.as_bytes(),
            self.credentials.clone(),
            Arc::clone(&self.capabilities),
        );
        let listed = tokio::time::timeout(TOOLS_PATIENCE, listed).await;
        listed.ok().and_then(Result::ok)
    }
}

impl<'a> Desk<'a> {
    /// `None`: there is none, or the server has tools of all our names.
    pub(in crate::downstream) async fn open(front: &'a Shared, who: Who) -> Option<Self> {
        let companion = front.companion.as_ref()?;
        // Without the list, neither raincheck nor the client can know of a name that clashes.
        let tools = who.tools(front).await;
        let is_taken = |name: &str| {
            tools
                .as_ref()
                .is_some_and(|tools| tools.get(name).is_some())
        };
        let names = CompanionNames::free(&companion.prefix, is_taken)?;
        Some(Self {
            front,
            companion,
            who,
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
            match self.who.client_era {
                // Its client answers by coming back.
                Era::Modern => InputWhen::BeforeTask,
                Era::Legacy => InputWhen::InTask,
            },
        )
    }

    /// How its client, whose request has these headers, hears that it became a task.
    pub(in crate::downstream) fn announce(&self, headers: &HeaderMap) -> Announce {
        Announce::Ticket(Ticket {
            names: self.names.clone(),
            client_era: self.who.client_era,
            takes_large_events: patience::takes_large_events(headers),
        })
    }
}
