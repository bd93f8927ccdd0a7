//! Where one caller's tickets are taken: which tools are ours, and what the server says of its own.

use std::sync::Arc;

use super::state::Companion;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::tools;
use crate::task::ticket::CompanionNames;

/// Where one caller's tickets are taken.
pub(in crate::downstream) struct CompanionTools<'a> {
    pub(super) proxy: &'a Arc<Proxy>,
    pub(super) companion: &'a Companion,
    pub(super) by: &'a Requester,
    pub(super) names: CompanionNames,
}

impl<'a> CompanionTools<'a> {
    /// For a client that can be asked what its capabilities say. `None`: there are no companion tools, or the
    /// server has tools of all our names.
    pub(in crate::downstream) async fn open(
        proxy: &'a Arc<Proxy>,
        by: &'a Requester,
        capabilities: &str,
    ) -> Option<Self> {
        let companion = proxy.companion.as_ref()?;
        let tools = tools::listed(proxy, by, capabilities).await;
        let names = companion.names(tools.as_deref())?;
        Some(Self::of(proxy, by, companion, names))
    }

    /// Where our tools have these names.
    pub(in crate::downstream) fn of(
        proxy: &'a Arc<Proxy>,
        by: &'a Requester,
        companion: &'a Companion,
        names: CompanionNames,
    ) -> Self {
        Self {
            proxy,
            companion,
            by,
            names,
        }
    }
}
