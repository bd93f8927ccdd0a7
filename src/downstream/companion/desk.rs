//! Where one caller's tickets are taken: which tools are ours, and what the server says of its own.

use super::state::Companion;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Shared;
use crate::downstream::tools;
use crate::task::ticket::CompanionNames;

/// Where one caller's tickets are taken.
pub(in crate::downstream) struct Desk<'a> {
    pub(super) front: &'a Shared,
    pub(super) companion: &'a Companion,
    pub(super) by: &'a Requester,
    pub(super) names: CompanionNames,
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
        Some(Self::of(front, by, companion, names))
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
        }
    }
}
