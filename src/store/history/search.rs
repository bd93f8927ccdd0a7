//! Pages of the history: the last entries, then chunk after chunk, of which the indexes show those that need not be read.

use std::cmp::Reverse;
use std::collections::HashMap;

use bytes::Bytes;
use futures_util::future::try_join_all;

use super::keep::{History, head_name, names_of, read, read_head};
use crate::store::error::StoreError;
use crate::task::history::{
    Acknowledged, ChunkIndex, ChunkPlace, EncodedChunk, EndGroup, EndedTask, ROWS, TaskFilter,
};
use crate::task::id::TaskId;

/// The most indexes that are read at the same time.
const INDEXES: usize = 64;

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
    /// The place behind which the next page begins, if there is one.
    pub next: Option<(u64, TaskId)>,
    /// `true` if entries are missing that were kept: the store lost them.
    pub is_partial: bool,
}

/// A query at one moment.
struct Search<'a> {
    query: HistoryQuery<'a>,
    now_ms: u64,
    /// Entries of earlier ends do not count any more.
    since_ms: u64,
    /// The failures that do not count, where only unacknowledged ones do.
    acks: HashMap<TaskId, Acknowledged>,
}

impl History {
    /// Reads a page. The work grows with what is read, and by a few bytes for each chunk that is left out.
    pub async fn page(&self, query: HistoryQuery<'_>) -> Result<HistoryPage, StoreError> {
        // The head first: what is put together meanwhile is still among the last entries, too.
        let head = read_head(self.find(head_name()).await?.value());
        let ended = self.store.ended(&head.places).await?;
        let acks = if query.unacknowledged {
            self.all_acknowledged().await?
        } else {
            HashMap::new()
        };
        let search = Search {
            query,
            now_ms: self.kv.now_ms(),
            since_ms: self.since_ms(),
            acks,
        };
        let mut page = HistoryPage::default();
        let last = ended.iter().filter_map(read);
        page.entries
            .extend(last.filter(|entry| search.wants(entry)));
        let mut chunks = head.chunks;
        chunks.retain(|chunk| search.may_be_at(chunk));
        chunks.sort_unstable_by_key(|chunk| Reverse(chunk.to_ms));
        let stopped_ms = self.read_chunks(&search, &chunks, &mut page).await?;
        page.entries
            .sort_unstable_by_key(|entry| Reverse(entry.place()));
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

    /// Reads the chunks, the last one first, until the page has enough. Returns the last end in the chunks that were not read
    /// although the page has not enough.
    async fn read_chunks(
        &self,
        search: &Search<'_>,
        mut chunks: &[ChunkPlace],
        page: &mut HistoryPage,
    ) -> Result<Option<u64>, StoreError> {
        let query = search.query;
        let (mut step, mut looked) = (1 + query.limit / ROWS, 0);
        while let Some(next) = chunks.first() {
            // One more than the page has, to know that there are more.
            let known = page.entries.iter();
            let before = known.filter(|entry| entry.times.ended_ms > next.to_ms);
            if before.count() > query.limit {
                break;
            }
            if looked >= query.chunks_max {
                return Ok(Some(next.to_ms));
            }
            let (some, rest) = chunks.split_at(step.min(chunks.len()));
            chunks = rest;
            let reading = some.iter().map(|chunk| self.if_may_be_in(search, chunk));
            for chunk in try_join_all(reading).await?.into_iter().flatten() {
                looked += 1;
                let chunk = chunk.as_deref().and_then(EncodedChunk::decode);
                page.is_partial |= chunk.is_none();
                // Each group is looked at once, and the rows of most are not decoded.
                let may_pass =
                    |group: &EndGroup<'_>| query.filter.passes_group(group, query.checks_end);
                let entries = chunk.iter().flat_map(|chunk| chunk.entries(may_pass));
                let wanted = entries.filter(|entry| search.wants(entry));
                page.entries.extend(wanted.map(EndedTask::into_owned));
            }
            // A search that finds little looks further at once.
            step = (step * 4).min(INDEXES);
        }
        Ok(None)
    }

    /// The chunk to be decoded, if its index says that it may have what is looked for. The inner `None`: the store has lost it.
    async fn if_may_be_in(
        &self,
        search: &Search<'_>,
        chunk: &ChunkPlace,
    ) -> Result<Option<Option<Bytes>>, StoreError> {
        let (filter, checks_end) = (search.query.filter, search.query.checks_end);
        if filter.is_about_content(checks_end) {
            let [_, index, _] = names_of(&chunk.name);
            let found = self.find(index).await?;
            let index = found.value().and_then(|found| ChunkIndex::decode(found));
            // Without an index the chunk itself is read.
            if index.is_some_and(|index| !filter.may_be_in(&index, checks_end)) {
                return Ok(None);
            }
        }
        self.chunk(chunk).await.map(Some)
    }
}

impl Search<'_> {
    fn wants(&self, entry: &EndedTask<'_>) -> bool {
        let query = &self.query;
        let is_open = || entry.group.is_failure() && !self.acks.contains_key(&entry.id);
        entry.times.ended_ms >= self.since_ms
            && (!query.unacknowledged || is_open())
            && query.after.is_none_or(|after| entry.place() < after)
            && query
                .filter
                .passes_ended(entry, query.checks_end, self.now_ms)
    }

    /// Returns `true` if entries of the chunk may be wanted, by what the head says of it.
    fn may_be_at(&self, chunk: &ChunkPlace) -> bool {
        let query = &self.query;
        chunk.to_ms >= self.since_ms
            && (!query.unacknowledged || chunk.failures > 0)
            && query
                .after
                .is_none_or(|(after_ms, _)| chunk.from_ms <= after_ms)
            && query
                .filter
                .has_change(chunk.from_ms, chunk.to_ms, self.now_ms)
    }
}
