//! Acknowledgements of failures: one value for the failures of each day.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::future::try_join_all;

use super::keep::{History, MARGIN, head_name, read, read_head};
use crate::store::error::StoreError;
use crate::store::kv::{Kind, Name};
use crate::task::history::{
    Acknowledged, Acknowledgements, EncodedChunk, EndGroup, EndedTask, TooMany, day_of,
};
use crate::task::id::TaskId;

/// Attempts to change the value of a day while others change it, too.
const ATTEMPTS: usize = 8;

/// Why a failure is not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AcknowledgeError {
    #[error("as many failures of that day are acknowledged as the history keeps of one day")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TooMany> for AcknowledgeError {
    fn from(TooMany: TooMany) -> Self {
        Self::TooMany
    }
}

impl History {
    /// Notes that somebody has looked at a failure, in place of an earlier note.
    pub async fn acknowledge(&self, ack: Acknowledged) -> Result<(), AcknowledgeError> {
        let name = name_of(day_of(ack.ended_ms));
        for _ in 0..ATTEMPTS {
            let found = self.find(name).await?;
            let mut acks = decoded(found.value());
            acks.put(ack.clone())?;
            let value = Bytes::from(acks.encode());
            let lifetime = self.terms.keep + MARGIN;
            if self.write_over(name, found, value, lifetime).await? {
                return Ok(());
            }
        }
        let why = "the acknowledgements change too often";
        Err(StoreError::Unavailable(why.into()).into())
    }

    /// The acknowledgements of the failures among these.
    pub async fn acknowledged<'e>(
        &self,
        entries: impl Iterator<Item = &'e EndedTask<'e>>,
    ) -> Result<HashMap<TaskId, Acknowledged>, StoreError> {
        let failures = entries.filter(|entry| entry.group.is_failure());
        self.of_days(failures.map(|entry| day_of(entry.times.ended_ms)).collect())
            .await
    }

    /// The acknowledgements of all failures that the history still has.
    pub(super) async fn all_acknowledged(
        &self,
    ) -> Result<HashMap<TaskId, Acknowledged>, StoreError> {
        let days = day_of(self.since_ms())..=day_of(self.kv.now_ms());
        self.of_days(days.collect()).await
    }

    async fn of_days(
        &self,
        days: BTreeSet<u64>,
    ) -> Result<HashMap<TaskId, Acknowledged>, StoreError> {
        let reading = days.into_iter().map(|day| self.find(name_of(day)));
        let acks = try_join_all(reading).await?.into_iter();
        let acks = acks.flat_map(|found| decoded(found.value()));
        Ok(acks.map(|ack| (ack.id, ack)).collect())
    }

    /// The number of failures that nobody has looked at.
    pub async fn unacknowledged(&self) -> Result<usize, StoreError> {
        let since_ms = self.since_ms();
        let head = read_head(self.find(head_name()).await?.value());
        let ended = self.store.ended(&head.places).await?;
        let is_failure =
            |entry: &EndedTask<'_>| entry.group.is_failure() && entry.times.ended_ms >= since_ms;
        let mut failures = ended.iter().filter_map(read).filter(is_failure).count();
        for chunk in head.chunks.iter().filter(|chunk| chunk.failures > 0) {
            if chunk.from_ms >= since_ms {
                failures += chunk.failures;
            } else if chunk.to_ms >= since_ms {
                // Some of it counts no more.
                let chunk = self.chunk(chunk).await?;
                let chunk = chunk.as_deref().and_then(EncodedChunk::decode);
                let entries = chunk
                    .iter()
                    .flat_map(|chunk| chunk.entries(EndGroup::is_failure));
                failures += entries.filter(is_failure).count();
            }
        }
        if failures == 0 {
            return Ok(0);
        }
        // The history may not go back as far as the acknowledgements do.
        let firsts = head.chunks.iter().map(|chunk| chunk.from_ms);
        let last = ended.iter().filter_map(read);
        let firsts = firsts.chain(last.map(|entry| entry.times.ended_ms));
        let first_ms = firsts.min().unwrap_or(since_ms).max(since_ms);
        let acks = self.all_acknowledged().await?;
        let acks = acks.values().filter(|ack| ack.ended_ms >= first_ms);
        Ok(failures.saturating_sub(acks.count()))
    }
}

fn name_of(day: u64) -> Name {
    Name::of(Kind::Acknowledgements, &[&day.to_string()])
}

fn decoded(found: Option<&Bytes>) -> Acknowledgements {
    found.map_or_else(Acknowledgements::default, |found| {
        Acknowledgements::decode(found)
    })
}
