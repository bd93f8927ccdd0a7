//! The tools that operators paused: one value in the store, which every replica follows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use super::state::Runner;
use super::watch::RELOAD;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::task::pauses::{PAUSES_MAX, Pause, Pauses};
use crate::telemetry::limits;

/// The longest time between two looks at the value: the news of a change may be lost with a store.
const LOOK: Duration = Duration::from_secs(30);

/// The time that the store keeps the value after the last pause has ended.
const MARGIN: Duration = Duration::from_hours(1);

/// Attempts to change the value while others change it, too.
const ATTEMPTS: usize = 8;

/// Why the pauses are not changed.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("there are {PAUSES_MAX} pauses already: end some of them")]
    TooMany,
    #[error("{0}")]
    NotPaused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The name of the value with all pauses.
pub fn name() -> Name {
    Name::of(Kind::Pauses, &[])
}

impl Runner {
    /// The pauses that are in force here.
    pub fn pauses(&self) -> Arc<Pauses> {
        Arc::clone(self.rules().pauses())
    }

    /// Pauses tools on every replica. A pause of the same tools is replaced.
    pub async fn pause_tools(&self, pause: &Pause) -> Result<(), PauseError> {
        let change = |pauses: Pauses| pauses.with(pause.clone()).ok_or(PauseError::TooMany);
        self.change_pauses(change).await
    }

    /// Ends the pause of these tools on every replica.
    pub async fn resume_tools(&self, tools: &str) -> Result<(), PauseError> {
        self.change_pauses(|pauses| {
            let known: Vec<&str> = pauses.iter().map(|pause| &*pause.tools).collect();
            if known.contains(&tools) {
                return Ok(pauses.without(tools));
            }
            Err(PauseError::NotPaused(match known.as_slice() {
                [] => "nothing is paused".to_owned(),
                known => format!("no pause is of these tools; paused: {}", known.join(", ")),
            }))
        })
        .await
    }

    /// Reads the pauses, unless they were read before: calls of lost owners may be calls of paused tools.
    pub(super) async fn ensure_pauses_read(&self) -> Result<(), StoreError> {
        if self.admission.has_read_pauses() {
            return Ok(());
        }
        self.read_pauses().await
    }

    /// Follows the pauses until the process ends.
    pub(super) async fn follow_pauses(self: Arc<Self>) {
        let watch = self.watch_value(name());
        let following = async {
            loop {
                // A store that is away must not make a pause longer.
                match timeout_at(self.next_look(), self.read_pauses()).await {
                    Ok(Ok(())) => {
                        let _ = timeout_at(self.next_look(), watch.changed()).await;
                    }
                    Ok(Err(_away)) => {
                        let _ = timeout_at(self.next_look(), sleep(RELOAD)).await;
                    }
                    // The news is not lost: the value is read again.
                    Err(_elapsed) => {}
                }
                let before = self.admission.end_pauses(self.ledger.now_ms());
                self.report_pauses(before.as_deref());
            }
        };
        self.halt.run_until_cancelled(following).await;
    }

    /// Reads the value and applies it, unless what a later read found is applied already.
    async fn read_pauses(&self) -> Result<(), StoreError> {
        let number = self.admission.begin_read();
        // Asked once: callers come again, and together they must not ask a store that refuses them many times a second.
        let found = match self.ledger.store().find(name()).await {
            Ok(found) => read(found.as_ref()),
            Err(away @ (StoreError::Unavailable(_) | StoreError::Full)) => return Err(away),
            Err(StoreError::Newer | StoreError::UnknownKey | StoreError::Corrupt(_)) => None,
        };
        if found.is_none() {
            warn!("the pauses of tools in the store cannot be read: those known here stay");
        }
        let now_ms = self.ledger.now_ms();
        let before = self.admission.take_pauses(number, found, now_ms);
        self.report_pauses(before.as_deref());
        Ok(())
    }

    fn next_look(&self) -> Instant {
        let left_ms = |end_ms: u64| end_ms.saturating_sub(self.ledger.now_ms());
        let next_end = self.pauses().next_end_ms();
        let next_end = next_end.map(|end_ms| Duration::from_millis(left_ms(end_ms)));
        Instant::now() + next_end.map_or(LOOK, |end| end.min(LOOK))
    }

    /// Reports the pauses that are in force now. `before`: those that were, if that changed.
    fn report_pauses(&self, before: Option<&Pauses>) {
        let Some(before) = before else {
            return;
        };
        let pauses = self.pauses();
        for pause in pauses.iter().filter(|pause| !before.has(pause)) {
            info!(tools = &*pause.tools, terms = %pause.terms(), "tools are paused");
        }
        for pause in before.iter().filter(|pause| !pauses.has(pause)) {
            info!(tools = &*pause.tools, "a pause of tools is over");
        }
        limits::paused(pauses.iter().count());
    }

    async fn change_pauses(
        &self,
        change: impl Fn(Pauses) -> Result<Pauses, PauseError>,
    ) -> Result<(), PauseError> {
        for _ in 0..ATTEMPTS {
            let found = self.kv.find(name()).await?;
            let now_ms = self.ledger.now_ms();
            // What cannot be read is replaced: otherwise no pause could be made any more.
            let before = read(found.as_ref()).unwrap_or_else(|| Pauses::clone(&self.pauses()));
            let before = before.in_force(now_ms);
            let pauses = change(before)?;
            let last_end_ms = pauses.iter().map(|pause| pause.until_ms).max();
            let left_ms = last_end_ms.unwrap_or(now_ms).saturating_sub(now_ms);
            let lifetime = Duration::from_millis(left_ms) + MARGIN;
            let value = Bytes::from(pauses.encode());
            if self.kv.change(name(), found, value, lifetime).await? {
                // The value counts, and every replica looks at it again within a while.
                let told = self.kv.tell(name()).await;
                if let Err(error) = self.read_pauses().await.and(told) {
                    warn!(%error, "not every replica knows of a change of the pauses yet");
                }
                return Ok(());
            }
        }
        Err(StoreError::Unavailable("the pauses change too often".into()).into())
    }
}

/// `None`: the value cannot be read.
fn read(found: Option<&Bytes>) -> Option<Pauses> {
    found.map_or_else(|| Some(Pauses::default()), |value| Pauses::decode(value))
}
