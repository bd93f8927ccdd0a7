//! The history of the tasks that have ended, over any store.
//!
//! The commit that ends a task also adds an entry to the last entries ([`Store::ended`]), so that an announced end has one. From
//! there any replica puts them together in chunks of [`ROWS`]: a value with the entries, and one with an index by which a
//! search leaves the chunk out. The head names the chunks, and the entries that are in them. It is replaced only as it was
//! read, so that of two replicas one counts, and nothing is lost if one dies half-way.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use tokio::sync::Notify;
use tracing::warn;

use super::error::StoreError;
use super::key_value::KeyValue;
use super::kv::{Kind, Name};
use super::random::random_bytes;
use super::{ENDED_LENGTH, Ended, HistoryEntry, Store};
use crate::mcp::hex;
use crate::task::history::{
    Chunk, ChunkIndex, ChunkPlace, EndGroup, EndedTask, HistoryHead, ROWS, TaskFilter,
};
use crate::task::id::TaskId;
use crate::task::state::Task;
use crate::telemetry::metrics::METRICS;

mod acks;

pub use acks::AcknowledgeError;

/// The time that chunks outlive their entries, so that none goes while it is read.
const MARGIN: Duration = Duration::from_hours(1);

/// The most indexes that are read at the same time.
const INDEXES: usize = 64;

/// How much is kept.
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
    store: Arc<dyn Store>,
    kv: KeyValue,
    terms: HistoryTerms,
    /// The entries that this replica added.
    added: AtomicUsize,
    /// Notified when there may be enough entries for a chunk.
    enough: Notify,
}

/// Which entries are read.
#[derive(Debug, Clone, Copy)]
pub struct HistoryQuery<'a> {
    pub filter: &'a TaskFilter,
    /// `false`: the filters of the end do not count.
    pub checks_end: bool,
    /// Only failures that nobody has acknowledged.
    pub unacknowledged: bool,
    /// The page begins behind this entry, in the order of [`EndedTask::place`] from the last one on.
    pub after: Option<(u64, TaskId)>,
    pub limit: usize,
    /// The most chunks whose entries are read. Beyond it the page ends.
    pub chunks_max: usize,
}

/// Some entries, the last end first.
#[derive(Debug, Default)]
pub struct HistoryPage {
    pub entries: Vec<EndedTask<'static>>,
    /// The last entry, if more follow it.
    pub next: Option<(u64, TaskId)>,
    /// `true` if entries are missing that were kept: the store lost them.
    pub is_partial: bool,
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
            enough: Notify::new(),
        }
    }

    /// What is kept of a task that ends with this commit.
    pub(super) fn entry(&self, task: &Task) -> Option<HistoryEntry> {
        let ended = EndedTask::of(task)?;
        Some(HistoryEntry {
            entry: ended.encode().into(),
            expires_ms: ended.times.ended_ms.saturating_add(self.keep_ms()),
        })
    }

    /// Notes that an entry was added.
    pub(super) fn added(&self) {
        let before = self.added.fetch_add(1, Ordering::Relaxed);
        if before % ROWS == ROWS - 1 {
            self.enough.notify_one();
        }
    }

    /// Waits until this replica has added about as many entries as a chunk has.
    pub async fn enough(&self) {
        self.enough.notified().await;
    }

    /// Puts entries together, if there are enough of them. May be called by several replicas at the same time, and
    /// dropped at any point.
    pub async fn fold(&self) -> Result<(), StoreError> {
        let found = self.kv.find(head_name()).await?;
        let mut head = read_head(found.as_ref());
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
        let (chunks, _) = ended.as_chunks::<ROWS>();
        if chunks.is_empty() {
            return Ok(());
        }
        let written = chunks.iter().map(|ended| self.write(ended));
        let written = try_join_all(written).await?;
        head.chunks.extend(written.iter().flatten().cloned());
        for ended in chunks.as_flattened() {
            head.pass(ended.place);
        }
        let old = head.take_old(self.since_ms(), self.terms.entries_max);
        let value = Bytes::from(head.encode());
        let lifetime = self.terms.keep + MARGIN;
        let is_done = match found {
            Some(found) => self.kv.replace(head_name(), found, value, lifetime).await?,
            None => {
                let claimed = self.kv.claim(head_name(), value, lifetime).await?;
                claimed.is_none()
            }
        };
        // Another replica put the same entries together, so that nothing names these chunks.
        let gone = if is_done {
            old
        } else {
            written.into_iter().flatten().collect()
        };
        let names = gone.iter().flat_map(|chunk| names_of(&chunk.name));
        join_all(names.map(|name| self.kv.remove(name))).await;
        Ok(())
    }

    /// Writes one chunk under a name that no other has. `None`: no entry of it can be read.
    async fn write(&self, ended: &[Ended]) -> Result<Option<ChunkPlace>, StoreError> {
        let entries = ended.iter().filter_map(read);
        let chunk = Chunk::of(entries.collect());
        let Some((from_ms, to_ms)) = chunk.span_ms() else {
            return Ok(None);
        };
        let name = hex::encode(&random_bytes::<16>()?);
        let [rows, index] = names_of(&name);
        let lifetime = self.terms.keep + MARGIN;
        self.kv.put(rows, chunk.encode().into(), lifetime).await?;
        let value = chunk.index().encode();
        self.kv.put(index, value.into(), lifetime).await?;
        Ok(Some(ChunkPlace {
            name: name.into(),
            from_ms,
            to_ms,
            entries: ended.len(),
            failures: chunk.entries(EndGroup::is_failure).count(),
        }))
    }

    /// Reads a page. The work grows with what is read, and by a few bytes for each chunk that is left out.
    pub async fn page(&self, query: HistoryQuery<'_>) -> Result<HistoryPage, StoreError> {
        let now_ms = self.kv.now_ms();
        let since_ms = self.since_ms();
        // The head first: what is put together meanwhile is still among the last entries, too.
        let mut head = read_head(self.kv.find(head_name()).await?.as_ref());
        let ended = self.store.ended(&head.places).await?;
        let acks = match query.unacknowledged {
            true => self.all_acknowledged().await?,
            false => HashMap::new(),
        };
        let wants = |entry: &EndedTask<'_>| {
            let is_open = || entry.group.is_failure() && !acks.contains_key(&entry.id);
            entry.times.ended_ms >= since_ms
                && (!query.unacknowledged || is_open())
                && query.after.is_none_or(|after| entry.place() < after)
                && query.filter.passes_ended(entry, query.checks_end, now_ms)
        };
        let mut page = HistoryPage::default();
        page.entries
            .extend(ended.iter().filter_map(read).filter(wants));
        head.chunks.retain(|chunk| {
            chunk.to_ms >= since_ms
                && query
                    .after
                    .is_none_or(|(after_ms, _)| chunk.from_ms <= after_ms)
                && query.filter.has_change(chunk.from_ms, chunk.to_ms, now_ms)
        });
        head.chunks
            .sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.to_ms));
        if query.unacknowledged {
            head.chunks.retain(|chunk| chunk.failures > 0);
        }
        let is_searched = query.filter.is_about_content(query.checks_end);
        let (mut step, mut looked) = (1 + query.limit / ROWS, 0);
        let mut chunks = head.chunks.as_slice();
        let mut stopped_ms = None;
        while let Some(next) = chunks.first() {
            // One more than the page has, to know that there are more.
            let known = page.entries.iter();
            let before = known.filter(|entry| entry.times.ended_ms > next.to_ms);
            if before.count() > query.limit {
                break;
            }
            if looked >= query.chunks_max {
                stopped_ms = Some(next.to_ms);
                break;
            }
            let (some, rest) = chunks.split_at(step.min(chunks.len()));
            chunks = rest;
            let reading = some.iter().map(|chunk| async {
                if is_searched && !self.may_be_in(chunk, query).await? {
                    return Ok::<_, StoreError>(None);
                }
                Ok(Some(self.chunk(chunk).await?))
            });
            for chunk in try_join_all(reading).await?.into_iter().flatten() {
                looked += 1;
                page.is_partial |= chunk.is_none();
                let entries = chunk.iter().flat_map(|chunk| chunk.entries(|_| true));
                page.entries.extend(entries.filter(wants));
            }
            // A search that finds little looks further at once.
            step = (step * 4).min(INDEXES);
        }
        page.entries
            .sort_unstable_by_key(|entry| std::cmp::Reverse(entry.place()));
        // An entry that was put together while it was read.
        page.entries.dedup_by_key(|entry| entry.place());
        if let Some(stopped_ms) = stopped_ms {
            // Between these there may be entries of the chunks that were not read.
            page.entries
                .retain(|entry| entry.times.ended_ms > stopped_ms);
            page.next = Some((stopped_ms + 1, TaskId::from_bytes([0; 16])));
        }
        if page.entries.len() > query.limit {
            page.entries.truncate(query.limit);
            page.next = page.entries.last().map(EndedTask::place);
        }
        Ok(page)
    }

    /// `None`: the store has lost it.
    async fn chunk(&self, place: &ChunkPlace) -> Result<Option<Chunk<'static>>, StoreError> {
        let [rows, _] = names_of(&place.name);
        let found = self.kv.find(rows).await?;
        Ok(found.as_ref().and_then(|found| Chunk::decode(found)))
    }

    async fn may_be_in(
        &self,
        chunk: &ChunkPlace,
        query: HistoryQuery<'_>,
    ) -> Result<bool, StoreError> {
        let [_, index] = names_of(&chunk.name);
        let found = self.kv.find(index).await?;
        let index = found.as_ref().and_then(|found| ChunkIndex::decode(found));
        // Without an index the chunk itself is read.
        Ok(index.is_none_or(|index| query.filter.may_be_in(&index, query.checks_end)))
    }

    fn keep_ms(&self) -> u64 {
        u64::try_from(self.terms.keep.as_millis()).unwrap_or(u64::MAX)
    }

    /// Entries of earlier ends are not found any more.
    fn since_ms(&self) -> u64 {
        self.kv.now_ms().saturating_sub(self.keep_ms())
    }
}

fn head_name() -> Name {
    Name::of(Kind::History, &[])
}

/// The names of a chunk's entries and of its index.
fn names_of(chunk: &str) -> [Name; 2] {
    [Kind::HistoryChunk, Kind::HistoryIndex].map(|kind| Name::of(kind, &[chunk]))
}

/// A head that cannot be read counts as none: the last entries are still there.
fn read_head(found: Option<&Bytes>) -> HistoryHead {
    let head = found.map(|found| HistoryHead::decode(found));
    head.unwrap_or_else(|| Some(HistoryHead::default()))
        .unwrap_or_else(|| {
            warn!("the head of the history cannot be read: it begins anew");
            HistoryHead::default()
        })
}

fn read(ended: &Ended) -> Option<EndedTask<'static>> {
    EndedTask::decode(ended.id, &ended.entry)
}
