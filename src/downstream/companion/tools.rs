//! The companion tools as one caller sees them: their names beside the server's tools.

use std::sync::Arc;

use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::tools;
use crate::task::ticket::CompanionNames;

/// The companion tools as one caller sees them.
pub(in crate::downstream) struct CompanionTools<'a> {
    pub(super) proxy: &'a Arc<Proxy>,
    pub(super) by: &'a Requester,
    pub(super) names: CompanionNames,
}

impl<'a> CompanionTools<'a> {
    /// Asks the server for its list of tools first. `None`: the companion tools are switched off, or the server has
    /// tools with all their names.
    pub(in crate::downstream) async fn open(
        proxy: &'a Arc<Proxy>,
        by: &'a Requester,
        capabilities: &str,
    ) -> Option<Self> {
        let companion = proxy.companion_of(by)?;
        let tools = tools::listed(proxy, by, capabilities).await;
        let names = companion.names(tools.as_deref())?;
        Some(Self::of(proxy, by, names))
    }

    /// The companion tools under these names.
    pub(in crate::downstream) fn of(
        proxy: &'a Arc<Proxy>,
        by: &'a Requester,
        names: CompanionNames,
    ) -> Self {
        Self { proxy, by, names }
    }
}
