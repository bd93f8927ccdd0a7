//! Waits for a store that was not there at the start, and builds the parts that serve over it.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::error::AppError;
use super::listener::ReloadedListener;
use super::opened::Opened;
use super::parts::{Parts, Surroundings};
use super::reload::Reload;
use super::store::{StoreOpenError, open};
use crate::base::backoff::Backoff;

/// The pauses between two attempts to open the store.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// The interval at which the log repeats that the store is still unavailable.
const TELL: Duration = Duration::from_mins(1);

/// A store that was not there at the start.
#[derive(Debug)]
pub(super) struct WaitingForStore {
    /// Why the first attempt failed.
    pub(super) missing: AppError,
    pub(super) listener: ReloadedListener,
    /// Ends the background jobs of the parts without a store.
    pub(super) early: CancellationToken,
}

impl WaitingForStore {
    /// The parts over the store, once it is there. They were started, so that tasks of dead replicas are recovered.
    /// `Err`: the store refuses raincheck, and will go on to.
    pub(super) async fn parts(
        &self,
        reload: &Reload,
        around: &Surroundings,
        stop: &CancellationToken,
    ) -> Result<Parts, AppError> {
        let (opened, key) = self.opened(reload, around, stop).await?;
        let parts = reload.replace_parts(|config| {
            let parts = Parts::new(config, opened, &key, around, stop)?;
            let reloaded = parts.reloaded(config, &self.listener);
            Ok((parts, reloaded))
        });
        let parts = parts.await?;
        // If the store is away again by now, the new parts serve without it, as in any other outage.
        parts.proxy.runner.start_without_store().await;
        Ok(parts)
    }

    async fn opened(
        &self,
        reload: &Reload,
        around: &Surroundings,
        stop: &CancellationToken,
    ) -> Result<(Opened, [u8; 32]), AppError> {
        let began = Instant::now();
        let mut told = began;
        let mut pauses = PAUSES;
        let why = &self.missing;
        warn!(%why, "the store is not there yet; no call becomes a task until it is, and it is tried again");
        loop {
            // The first attempt was made at the start, so the pause comes first.
            tokio::time::sleep(pauses.spread_pause()).await;
            let config = reload.running();
            let why = match open(&config, &around.services, stop).await {
                Ok(opened) => return Ok(opened),
                Err(StoreOpenError::Away(why)) => why,
                Err(StoreOpenError::Refused(why)) => return Err(why),
            };
            let now = Instant::now();
            if now.saturating_duration_since(told) >= TELL {
                let seconds = now.saturating_duration_since(began).as_secs();
                warn!(%why, seconds, "the store is still not there");
                told = now;
            }
        }
    }
}
