//! The ends of a period: of most chunks only their sums are read.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::keep::{History, head_name, names_of, read, read_head};
use crate::store::error::StoreError;
use crate::task::history::{ChunkPlace, EncodedChunk, EndSums, Period, PeriodEnds};

/// The most values that are read at the same time.
const AT_ONCE: usize = 32;

impl History {
    /// Counts the ends of a period. Returns them, and `true` if entries are missing that were kept: the store lost them.
    ///
    /// A chunk is read entry by entry only if its ends lie in several steps, so the work grows with the steps and, by little, with
    /// the chunks.
    pub async fn ends(&self, period: Period) -> Result<(PeriodEnds, bool), StoreError> {
        let head = read_head(self.find(head_name()).await?.value());
        let ended = self.store.ended(&head.places).await?;
        let mut ends = PeriodEnds::new(period);
        for entry in ended.iter().filter_map(read) {
            ends.count(&entry);
        }
        let mut chunks = head.chunks;
        chunks.retain(|chunk| period.meets(chunk.from_ms, chunk.to_ms));
        let counting = stream::iter(chunks).map(|chunk| self.count(chunk, period));
        let mut counting = counting.buffer_unordered(AT_ONCE);
        let mut is_partial = false;
        while let Some(counted) = counting.try_next().await? {
            match counted {
                Some(Counted::Sums(step, sums)) => ends.merge(step, &sums),
                Some(Counted::Chunk(chunk)) => match EncodedChunk::decode(&chunk) {
                    Some(chunk) => chunk.entries(|_| true).for_each(|entry| ends.count(&entry)),
                    None => is_partial = true,
                },
                None => is_partial = true,
            }
        }
        Ok((ends, is_partial))
    }

    /// `None`: the store has lost it.
    async fn count(
        &self,
        chunk: ChunkPlace,
        period: Period,
    ) -> Result<Option<Counted>, StoreError> {
        let [from, to] = [chunk.from_ms, chunk.to_ms].map(|at_ms| period.step_of(at_ms));
        if let Some(step) = from.filter(|_| from == to) {
            let [.., sums] = names_of(&chunk.name);
            let found = self.find(sums).await?;
            if let Some(sums) = found.value().and_then(|found| EndSums::decode(found)) {
                return Ok(Some(Counted::Sums(step, sums)));
            }
        }
        Ok(self.chunk(&chunk).await?.map(Counted::Chunk))
    }
}

/// A chunk as it was read.
enum Counted {
    /// The sums of one whose ends all lie in this step.
    Sums(usize, EndSums),
    Chunk(bytes::Bytes),
}
