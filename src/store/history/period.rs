//! The ends of a period: of most chunks only their sums are read.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::keep::{History, head_name, names_of, read, read_head};
use crate::store::error::StoreError;
use crate::task::history::{ChunkPlace, EncodedChunk, EndSums, Period, PeriodEnds, ROWS};

/// The most values that are read at the same time.
const AT_ONCE: usize = 32;

impl History {
    /// Counts the ends of a period.
    ///
    /// A chunk is read entry by entry only if its ends lie in several steps, so the work grows with the steps and, by little, with
    /// the chunks.
    pub async fn ends(&self, period: Period) -> Result<CountedEnds, StoreError> {
        let head = read_head(self.find(head_name()).await?.value());
        let ended = self.store.ended(&head.places).await?;
        let mut ends = PeriodEnds::new(period);
        // As in a list: what is older may be gone, or not yet.
        let mut since_ms = self.since_ms();
        let mut chunks = head.chunks;
        // The oldest chunks go where there are too many entries.
        let kept: usize = chunks.iter().map(|chunk| chunk.entries).sum();
        if kept.saturating_add(ROWS) > self.terms.entries_max {
            let firsts = chunks.iter().map(|chunk| chunk.from_ms);
            since_ms = firsts.min().unwrap_or(since_ms).max(since_ms);
        }
        for entry in ended.iter().filter_map(read) {
            if entry.times.ended_ms >= since_ms {
                ends.count(&entry);
            }
        }
        chunks.retain(|chunk| chunk.to_ms >= since_ms && period.meets(chunk.from_ms, chunk.to_ms));
        let counting = stream::iter(chunks).map(|chunk| self.count(chunk, period, since_ms));
        let mut counting = counting.buffer_unordered(AT_ONCE);
        let mut is_partial = false;
        while let Some(counted) = counting.try_next().await? {
            match counted {
                Some(Counted::Sums(step, sums)) => ends.merge(step, &sums),
                Some(Counted::Chunk(chunk)) => match EncodedChunk::decode(&chunk) {
                    Some(chunk) => {
                        let entries = chunk.entries(|_| true);
                        entries
                            .filter(|entry| entry.times.ended_ms >= since_ms)
                            .for_each(|entry| ends.count(&entry));
                    }
                    None => is_partial = true,
                },
                None => is_partial = true,
            }
        }
        Ok(CountedEnds {
            ends,
            since_ms,
            is_partial,
        })
    }

    /// `None`: the store has lost it.
    async fn count(
        &self,
        chunk: ChunkPlace,
        period: Period,
        since_ms: u64,
    ) -> Result<Option<Counted>, StoreError> {
        let [from, to] = [chunk.from_ms, chunk.to_ms].map(|at_ms| period.step_of(at_ms));
        let is_whole = chunk.from_ms >= since_ms && from == to;
        if let Some(step) = from.filter(|_| is_whole) {
            let [.., sums] = names_of(&chunk.name);
            let found = self.find(sums).await?;
            if let Some(sums) = found.value().and_then(|found| EndSums::decode(found)) {
                return Ok(Some(Counted::Sums(step, sums)));
            }
        }
        Ok(self.chunk(&chunk).await?.map(Counted::Chunk))
    }
}

/// The ends of a period, as far as the history has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedEnds {
    pub ends: PeriodEnds,
    /// The Unix milliseconds of the time as far back as the history goes. Of earlier ends none counts.
    pub since_ms: u64,
    /// `true` if entries are missing that were kept: the store lost them.
    pub is_partial: bool,
}

/// A chunk as it was read.
enum Counted {
    /// The sums of one whose ends all lie in this step.
    Sums(usize, EndSums),
    Chunk(bytes::Bytes),
}
