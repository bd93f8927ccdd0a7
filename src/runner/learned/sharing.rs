//! Shares what was learned with the other replicas, and keeps it over restarts.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::memory::{LearnedPart, name};
use super::tools::ToolDurations;
use crate::base::lock::Mutex;
use crate::runner::state::Runner;
use crate::store::{Store, StoreError};

/// The shortest pause between two looks for what was counted.
const SAVE: Duration = Duration::from_secs(5);

/// After so many of these looks all parts are read, for what other replicas counted.
const SAVES_FOR_A_READ: u32 = 12;

/// The time that the store keeps a part in which no call ends.
const LIFETIME_MS: u64 = 30 * 24 * 3_600_000;

/// Attempts to write a part that other replicas write at the same time. What is not written then is written later.
const ATTEMPTS: usize = 4;

/// The time that one part may take: no request waits for this, and a store that is unavailable should be asked
/// seldom.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time that the last write of a process may take.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The durations that one write contains. Those that were not written when it is dropped are written the next time.
struct Taken<'a> {
    part: &'a Mutex<LearnedPart>,
    tools: ToolDurations,
}

impl<'a> Taken<'a> {
    fn of(part: &'a Mutex<LearnedPart>) -> Self {
        let tools = mem::take(&mut part.lock().unsaved);
        Self { part, tools }
    }

    fn forget(mut self) {
        self.tools = ToolDurations::default();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.tools.is_empty() {
            self.part.lock().unsaved.merge(&self.tools);
        }
    }
}

impl Runner {
    /// Reads and writes what is learned, until the process ends.
    pub(in crate::runner) async fn share_learned(self: Arc<Self>) {
        // A heartbeat was written just before: a store that is away is not asked.
        let mut beats = self.liveness.subscribe();
        let mut saves = 0_u32;
        let mut looked: Option<Instant> = None;
        // The end does not interrupt a write: its counts would be written a second time below.
        while let Some(Ok(())) = self.halt.run_until_cancelled(beats.changed()).await {
            let now = Instant::now();
            if looked.is_some_and(|at| now.saturating_duration_since(at) < SAVE) {
                continue;
            }
            looked = Some(now);
            self.share_parts(saves.is_multiple_of(SAVES_FOR_A_READ))
                .await;
            saves = saves.wrapping_add(1);
        }
        // The counts since the last look are in memory only, and would be lost with the process.
        let _ = timeout(LAST_WORDS, self.share_parts(false)).await;
    }

    /// Shares the parts that have new counts, or all parts. The counts that an unavailable store does not take now
    /// are written at a later attempt.
    async fn share_parts(&self, reads_all: bool) {
        for (number, part) in (0..).zip(&self.learned.parts) {
            let counted = !part.lock().unsaved.is_empty();
            if !counted && !reads_all {
                continue;
            }
            let shared = timeout(PATIENCE, self.share_part(number, part)).await;
            // Each further part would wait as long for the store, and what is not written stays for the next look.
            if !matches!(shared, Ok(Ok(()))) {
                return;
            }
        }
    }

    async fn share_part(&self, number: u8, part: &Mutex<LearnedPart>) -> Result<(), StoreError> {
        let taken = Taken::of(part);
        let store = self.ledger.store();
        let expires_ms = self.ledger.now_ms().saturating_add(LIFETIME_MS);
        for _ in 0..ATTEMPTS {
            let found = store.find(name(number)).await?;
            let mut tools = found
                .as_deref()
                .map(ToolDurations::decode)
                .unwrap_or_default();
            tools.merge(&taken.tools);
            if !taken.tools.is_empty()
                && !replace(store, (number, found), &tools, expires_ms).await?
            {
                continue;
            }
            taken.forget();
            let mut part = part.lock();
            // Calls that ended while the store was asked are counted in `unsaved` only.
            tools.merge(&part.unsaved);
            part.known = tools;
            return Ok(());
        }
        // Here `taken` is dropped, so that its counts are written at a later look.
        Ok(())
    }
}

/// Writes a part if it is as it was found. A write that was lost with its answer may count twice.
async fn replace(
    store: &dyn Store,
    (number, found): (u8, Option<Bytes>),
    tools: &ToolDurations,
    expires_ms: u64,
) -> Result<bool, StoreError> {
    let value = tools.encode(uuid::Uuid::new_v4().as_u128());
    if let Some(found) = found {
        return store.replace(name(number), found, value, expires_ms).await;
    }
    let claimed = store.claim(name(number), value, expires_ms).await;
    claimed.map(|other| other.is_none())
}
