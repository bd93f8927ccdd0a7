//! The pauses of a tool, as a leg follows them that was never sent.

use std::sync::Arc;

use tokio::sync::watch;

use super::limiter::Limiter;
use crate::task::pauses::{Pause, Pauses};

/// The limits that a leg passes, in this order.
#[derive(Debug)]
pub(super) struct LegLimits {
    pub(super) in_order: Vec<Arc<Limiter>>,
    /// The first is that of the tool's rule.
    pub(super) has_own: bool,
}

/// The pauses of the tool of one leg, and the limits that the leg passes once there is none.
#[derive(Debug)]
pub(in crate::runner) struct Pausing {
    pub(super) tool: Box<str>,
    pub(super) pauses: watch::Receiver<Arc<Pauses>>,
    pub(super) limits: LegLimits,
}

impl Pausing {
    /// The pause that the tool has now.
    pub(super) fn current(&self) -> Option<Arc<Pause>> {
        self.pauses.borrow().of(&self.tool).cloned()
    }

    /// Resolves when the tool has no pause. Cancel safe.
    pub(super) async fn over(&mut self) {
        let Self { tool, pauses, .. } = self;
        // Without a sender the process ends, and no pause matters any more.
        let _ = pauses.wait_for(|pauses| pauses.of(tool).is_none()).await;
    }

    /// Resolves when the tool has a pause. Cancel safe.
    pub(super) async fn begun(&mut self) {
        let Self { tool, pauses, .. } = self;
        let begun = pauses.wait_for(|pauses| pauses.of(tool).is_some());
        let is_over = begun.await.is_err();
        if is_over {
            std::future::pending::<()>().await;
        }
    }
}

impl LegLimits {
    /// The limiter of the tool's rule.
    pub(super) fn own(&self) -> Option<&Arc<Limiter>> {
        self.in_order.first().filter(|_| self.has_own)
    }
}
