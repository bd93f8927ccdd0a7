//! The entries of the history: added with the ends of tasks, then put together in chunks.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use tokio::sync::Notify;
use tracing::warn;

use crate::mcp::hex;
use crate::store::error::StoreError;
use crate::store::key_value::KeyValue;
use crate::store::kv::{Kind, Name};
use crate::store::random::random_bytes;
use crate::store::{ENDED_LENGTH, Ended, HistoryEntry, Store};
use crate::task::digest::Digest;
use crate::task::history::{Chunk, ChunkPlace, EndedTask, HistoryHead, ROWS};
use crate::task::state::{Outcome, Task};
use crate::telemetry::metrics::METRICS;

/// The time that chunks outlive their entries.
pub(super) const MARGIN: Duration = Duration::from_hours(1);

/// The bounds of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryTerms {
    /// For how long entries are found.
    pub keep: Duration,
    /// The most entries that are found, about.
    pub entries_max: usize,
}

/// The history of one store.
#[derive(Debug)]
pub struct History {
    pub(super) store: Arc<dyn Store>,
    pub(super) kv: KeyValue,
    pub(super) terms: HistoryTerms,
    /// The entries that this replica added.
    added: AtomicUsize,
    /// Notified when there may be enough entries for a chunk, and of each failure.
    news: Notify,
}

impl History {
    pub fn new(store: Arc<dyn Store>, kv: KeyValue, terms: HistoryTerms) -> Self {
        // Replicas begin elsewhere, so that they do not look together.
        let begin = random_bytes::<1>().map_or(0, |[byte]| usize::from(byte));
        Self {
            store,
            kv,
            terms,
            added: AtomicUsize::new(begin),
            news: Notify::new(),
        }
    }

    /// The entry of a task that ends with this commit. `None`: none is kept.
    pub(in crate::store) fn entry(&self, task: &Task) -> Option<HistoryEntry> {
        // A call with a log has its answer there, and is no task.
        let ended = EndedTask::of(task).filter(|_| task.log.is_none())?;
        Some(HistoryEntry {
            entry: ended.encode().into(),
            expires_ms: ended.times.ended_ms.saturating_add(self.keep_ms()),
        })
    }

    /// Notes that the entry of this task was added.
    pub(in crate::store) fn added(&self, task: &Task) {
        let before = self.added.fetch_add(1, Ordering::Relaxed);
        let is_failure = matches!(task.outcome, Some(Outcome::Failed(_)));
        if is_failure || before % ROWS == ROWS - 1 {
            self.news.notify_one();
        }
    }

    /// Waits until this replica has added about as many entries as a chunk has, or a failure.
    ///
    /// Cancel safe: dropped before it resolves, no news is lost.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Puts entries together, if there are enough of them. May be called by several replicas at the same time, and
    /// dropped at any point.
    pub async fn fold(&self) -> Result<(), StoreError> {
        let found = self.find(head_name()).await?;
        let mut head = read_head(found.value());
        let mut ended = self.store.ended(&head.places).await?;
        // In the order of their commits, as far as the clocks of several servers have one.
        ended.sort_by_key(|ended| (ended.place.at, ended.place.bucket));
        if ended.len() >= ENDED_LENGTH {
            METRICS.store.history_gaps.inc();
            warn!(
                entries = ended.len(),
                "the history is behind: ends before these may be missing in it"
            );
        }
        let readable = ended.iter().take_while(|ended| read(ended).is_some());
        // Another replica may have the key, or the version, for an entry that cannot be read here. Entries must not wait for
        // ever for one that no replica reads.
        let count = if ended.len() >= ENDED_LENGTH / 2 {
            ended.len()
        } else {
            readable.count()
        };
        let (chunks, _) = ended.get(..count).unwrap_or_default().as_chunks::<ROWS>();
        if chunks.is_empty() {
            return Ok(());
        }
        let written = chunks.iter().map(|ended| self.write(ended));
        let written = try_join_all(written).await?;
        head.chunks.extend(written.into_iter().flatten());
        for ended in chunks.as_flattened() {
            head.pass(ended.place);
        }
        let old = head.take_old(self.since_ms(), self.terms.entries_max);
        let value = Bytes::from(head.encode());
        let lifetime = self.terms.keep + MARGIN;
        // Where another replica was first, its head names these chunks, or they expire.
        if self.write_over(head_name(), found, value, lifetime).await? {
            let names = old.iter().flat_map(|chunk| names_of(&chunk.name));
            join_all(names.map(|name| self.kv.remove(name))).await;
        }
        Ok(())
    }

    /// Writes one chunk. `None`: no entry of it can be read.
    ///
    /// The name follows from the places of the entries: written again, by whichever replica, it is the same value.
    async fn write(&self, ended: &[Ended]) -> Result<Option<ChunkPlace>, StoreError> {
        let entries = ended.iter().filter_map(read);
        let chunk = Chunk::of(entries.collect());
        let Some((from_ms, to_ms)) = chunk.span_ms() else {
            return Ok(None);
        };
        let mut places = String::new();
        for Ended { place, .. } in ended {
            let (first, second) = place.at;
            let _ = write!(places, "{}:{first}-{second} ", place.bucket);
        }
        let name = hex::encode(Digest::of(&[&places]).as_bytes());
        let lifetime = self.terms.keep + MARGIN;
        let values = [
            chunk.encode(),
            chunk.index().encode(),
            chunk.sums().encode(),
        ];
        for (name, value) in names_of(&name).into_iter().zip(values) {
            self.kv.put(name, value.into(), lifetime).await?;
        }
        Ok(Some(ChunkPlace {
            name: name.into(),
            from_ms,
            to_ms,
            entries: ended.len(),
            failures: chunk.failures(),
        }))
    }

    /// A chunk, to be decoded. `None`: the store has lost it.
    pub(super) async fn chunk(&self, place: &ChunkPlace) -> Result<Option<Bytes>, StoreError> {
        let [rows, ..] = names_of(&place.name);
        Ok(self.find(rows).await?.value().cloned())
    }

    /// A value of the history. One that is not believed, such as one from before the seal, hides nothing else.
    pub(super) async fn find(&self, name: Name) -> Result<Found, StoreError> {
        match self.kv.find(name).await {
            Ok(found) => Ok(Found::Value(found)),
            Err(StoreError::Corrupt(_)) => Ok(Found::Unreadable),
            Err(other) => Err(other),
        }
    }

    /// Writes over what was found. Returns false if something else stands there by now.
    pub(super) async fn write_over(
        &self,
        name: Name,
        found: Found,
        value: Bytes,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        match found {
            Found::Value(found) => self.kv.change(name, found, value, lifetime).await,
            Found::Unreadable => {
                self.kv.put(name, value, lifetime).await?;
                Ok(true)
            }
        }
    }

    fn keep_ms(&self) -> u64 {
        u64::try_from(self.terms.keep.as_millis()).unwrap_or(u64::MAX)
    }

    /// Entries of earlier ends are not found any more.
    pub(super) fn since_ms(&self) -> u64 {
        self.kv.now_ms().saturating_sub(self.keep_ms())
    }
}

/// The value that was found under a name.
#[derive(Debug)]
pub(super) enum Found {
    Value(Option<Bytes>),
    /// Raincheck did not write it, or not as it is.
    Unreadable,
}

impl Found {
    pub(super) fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Value(found) => found.as_ref(),
            Self::Unreadable => None,
        }
    }
}

pub(super) fn head_name() -> Name {
    Name::of(Kind::History, &[])
}

/// The names of a chunk's entries, of its index and of its sums.
pub(super) fn names_of(chunk: &str) -> [Name; 3] {
    [Kind::HistoryChunk, Kind::HistoryIndex, Kind::HistorySums].map(|kind| Name::of(kind, &[chunk]))
}

/// A head that cannot be read counts as none: the last entries are still there.
pub(super) fn read_head(found: Option<&Bytes>) -> HistoryHead {
    let head = found.map(|found| HistoryHead::decode(found));
    head.unwrap_or_else(|| Some(HistoryHead::default()))
        .unwrap_or_else(|| {
            warn!("the head of the history cannot be read: it begins anew");
            HistoryHead::default()
        })
}

pub(super) fn read(ended: &Ended) -> Option<EndedTask<'static>> {
    EndedTask::decode(ended.id, &ended.entry)
}
