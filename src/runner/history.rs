//! The job that keeps the history of ended tasks together.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::warn;

use super::alarm::Alarm;
use super::state::Runner;

/// The longest time between two looks: the replicas that added the last entries may have died.
const LOOK: Duration = Duration::from_mins(1);

impl Runner {
    /// Puts entries of the history together until the process ends.
    pub(super) async fn keep_history(self: Arc<Self>) {
        let Some(history) = self.ledger.history() else {
            return;
        };
        let mut alarm = Alarm::default();
        let keeping = async {
            loop {
                let _ = timeout(LOOK, history.enough()).await;
                match history.fold().await {
                    Ok(()) => drop(alarm.works()),
                    Err(error) => {
                        if alarm.fails(error.kind(), Instant::now()) {
                            warn!(%error, "entries of the history wait: if they become too many, the oldest of them are lost");
                        }
                    }
                }
            }
        };
        // The work can be cut off anywhere: the head names only what is whole.
        self.halt.run_until_cancelled(keeping).await;
    }
}
