//! The job that keeps the history of ended tasks together, and the failures in it that nobody has looked at.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::alarm::Alarm;
use super::state::Runner;
use crate::store::StoreError;
use crate::store::history::{AcknowledgeError, History};
use crate::task::history::Acknowledged;
use crate::telemetry::metrics::METRICS;

/// The longest time between two looks: the replicas that added the last entries may have died.
const LOOK: Duration = Duration::from_mins(1);

/// The shortest time between two looks, however many tasks fail.
const PAUSE: Duration = Duration::from_millis(500);

impl Runner {
    /// Puts entries of the history together until the process ends.
    pub(super) async fn keep_history(self: Arc<Self>) {
        let Some(history) = self.ledger.history() else {
            return;
        };
        let mut alarm = Alarm::default();
        let keeping = async {
            loop {
                let kept = keep(history).await;
                match &kept {
                    Ok(()) => drop(alarm.works()),
                    Err(error) => {
                        if alarm.fails(error.kind(), Instant::now()) {
                            warn!(%error, "entries of the history wait: if they become too many, the oldest of them are lost");
                        }
                    }
                }
                // A store that is full or away is not asked again because of each task that fails.
                if kept.is_err() {
                    sleep(LOOK / 4).await;
                    continue;
                }
                sleep(PAUSE).await;
                let _ = timeout(LOOK, history.news()).await;
            }
        };
        // The work can be cut off anywhere: the head names only what is whole.
        self.halt.run_until_cancelled(keeping).await;
    }

    /// Notes that somebody has looked at a failure. Does nothing where no history is kept.
    pub async fn acknowledge(&self, ack: Acknowledged) -> Result<(), AcknowledgeError> {
        let Some(history) = self.ledger.history() else {
            return Ok(());
        };
        history.acknowledge(ack).await?;
        // The next look counts them anew where this one fails.
        if let Err(error) = count(history).await {
            debug!(%error, "the failures that nobody has acknowledged are not counted");
        }
        Ok(())
    }
}

async fn keep(history: &History) -> Result<(), StoreError> {
    history.fold().await?;
    count(history).await
}

async fn count(history: &History) -> Result<(), StoreError> {
    let count = history.unacknowledged().await?;
    let gauge = &METRICS.store.unacknowledged;
    gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}
