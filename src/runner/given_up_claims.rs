//! The given-up calls as far as this process knows of them: until when the store may have a claim of one, which claims are
//! being written, and the clocks that made clients give up.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::info;

use super::client_share::ClientCounts;
use crate::base::lock::Mutex;
use crate::store::kv::Name;
use crate::task::clocks::{ClientClocks, ClockName, RungClock};
use crate::telemetry::calls;

/// A mark that ends so much later than needed spares the next ones.
const MARK_SPARE_MS: u64 = 10_000;

/// The given-up calls as far as this process knows of them.
#[derive(Debug, Default)]
pub(super) struct GivenUpClaims {
    until_ms: AtomicU64,
    writing: watch::Sender<HashSet<Name>>,
    clocks: Mutex<ClientClocks>,
    /// `true` once a clock rang.
    has_clocks: AtomicBool,
    /// A clock rang since the last write.
    has_news: AtomicBool,
    /// Of the calls that have a record and clients here.
    pub(super) clients: ClientCounts,
}

/// The value that all replicas watch.
#[derive(Debug, Default, Serialize, Deserialize)]
struct GivenUpMark {
    /// Claims may stand until then.
    until_ms: u64,
    clocks: ClientClocks,
}

/// Returns the tools whose calls a client is known to give up, and the shortest time after which one does, from the value that
/// all replicas watch.
pub fn known_clocks(mark: &[u8], now_ms: u64) -> Vec<(String, Duration)> {
    let mark: GivenUpMark = serde_json::from_slice(mark).unwrap_or_default();
    let known = mark.clocks.known(now_ms).into_iter();
    known.map(|(tool, time)| (tool.to_owned(), time)).collect()
}

impl GivenUpClaims {
    /// Returns `true` if there may be a claim at this time. While no client gave up, this costs one comparison.
    pub(super) fn may_stand(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms != 0 && (now_ms() < until_ms || !self.writing.borrow().is_empty())
    }

    /// Returns `true` if the other replicas know by now that claims may stand until then, and which clocks rang.
    pub(super) fn is_marked(&self, until_ms: u64) -> bool {
        let has_news = self.has_news.load(Ordering::Relaxed);
        !has_news && self.until_ms.load(Ordering::Relaxed) >= until_ms
    }

    /// Returns the value for the other replicas, where claims may stand until then, and until when it counts.
    pub(super) fn mark(&self, until_ms: u64) -> (Bytes, u64) {
        // Before the clocks are read: one that rings meanwhile is written the next time.
        self.has_news.store(false, Ordering::Relaxed);
        // The highest time counts: a claim that was written earlier may stand longer.
        let spare_ms = until_ms.saturating_add(MARK_SPARE_MS);
        let until_ms = self.until_ms.load(Ordering::Relaxed).max(spare_ms);
        let clocks = self.clocks.lock().clone();
        let mark = serde_json::to_vec(&GivenUpMark { until_ms, clocks });
        (mark.unwrap_or_default().into(), until_ms)
    }

    /// Notes that the other replicas do not know all that is known here.
    pub(super) fn has_news(&self) {
        self.has_news.store(true, Ordering::Relaxed);
    }

    /// Takes over the value that a replica wrote.
    pub(super) fn read(&self, mark: &[u8], now_ms: u64) {
        let GivenUpMark { until_ms, clocks } = serde_json::from_slice(mark).unwrap_or_default();
        if !clocks.is_empty() {
            let mut known = self.clocks.lock();
            known.merge(clocks, now_ms);
            calls::clocks_known(&known.known(now_ms));
            self.has_clocks.store(true, Ordering::Relaxed);
        }
        self.stand_until(until_ms);
    }

    /// Notes that a client's clock rang.
    pub(super) fn rang(&self, clock: RungClock, tool: &str, now_ms: u64) {
        let mut known = self.clocks.lock();
        if known.rang(clock, tool, now_ms) {
            let seconds = clock.waited.as_secs();
            info!(
                tool,
                seconds,
                "a client gave up twice after the same time; its calls of the tool are answered shortly before"
            );
        }
        calls::clocks_known(&known.known(now_ms));
        drop(known);
        self.has_clocks.store(true, Ordering::Relaxed);
        self.has_news();
    }

    /// See [`ClientClocks::answer_after`]. While no clock rang, this costs one comparison.
    pub(super) fn answer_after(
        &self,
        name: impl FnOnce() -> Option<ClockName>,
        now_ms: impl FnOnce() -> u64,
    ) -> Option<Duration> {
        if !self.has_clocks.load(Ordering::Relaxed) {
            return None;
        }
        let name = name()?;
        self.clocks.lock().answer_after(name, now_ms())
    }

    /// Notes that there may be claims until then.
    pub(super) fn stand_until(&self, until_ms: u64) {
        // The highest time counts, because an older mark may be read after a newer one, and an expired mark reads as
        // zero.
        self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Notes that a claim of this name is being written, until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, name: Name) -> ClaimInWriting {
        self.writing.send_modify(|names| {
            names.insert(name);
        });
        // Any time makes requests look at `writing`.
        self.stand_until(1);
        let claims = Arc::clone(self);
        ClaimInWriting { claims, name }
    }

    /// Waits until no claim of this name is being written.
    pub(super) async fn written(&self, name: Name) {
        let mut writing = self.writing.subscribe();
        // The sender lives as long as `self`.
        let _ = writing.wait_for(|names| !names.contains(&name)).await;
    }
}

/// A claim that is being written. Dropped, it is written, or never will be.
#[derive(Debug)]
pub(super) struct ClaimInWriting {
    claims: Arc<GivenUpClaims>,
    name: Name,
}

impl Drop for ClaimInWriting {
    fn drop(&mut self) {
        self.claims.writing.send_modify(|names| {
            names.remove(&self.name);
        });
    }
}
