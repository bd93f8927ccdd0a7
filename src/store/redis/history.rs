//! The last entries of the history: a stream in each bucket, to which the commit script adds.

use futures_util::future::try_join_all;
use redis::from_redis_value;
use redis::streams::{StreamId, StreamRangeReply};

use super::Redis;
use super::log::LogPosition;
use crate::store::error::StoreError;
use crate::store::{ENDED_LENGTH, Ended};
use crate::task::history::HistoryPlace;
use crate::task::id::TaskId;

/// The number of entries that one command reads: about 1 MB.
const PAGE: usize = 4096;

impl Redis {
    pub(super) async fn read_ended(
        &self,
        after: &[HistoryPlace],
    ) -> Result<Vec<Ended>, StoreError> {
        let streams = self.keys.buckets().map(|bucket| {
            let after = after.iter().find(|place| place.bucket == bucket);
            self.ended_in(bucket, after.copied())
        });
        // One error fails the read: without the entries of one bucket it would look complete.
        let found = try_join_all(streams).await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn ended_in(
        &self,
        bucket: u16,
        after: Option<HistoryPlace>,
    ) -> Result<Vec<Ended>, StoreError> {
        let key = self.keys.history(bucket);
        let mut from = after.map(|place| LogPosition::from(place.at));
        let mut ended = Vec::new();
        loop {
            let start = from.map_or_else(|| "-".to_owned(), |from| format!("({from}"));
            let mut command = redis::cmd("XRANGE");
            command.arg(&key).arg(start).arg("+").arg("COUNT").arg(PAGE);
            let page: StreamRangeReply = self.bulk.query(&key, &command).await?;
            ended.extend(page.ids.iter().filter_map(|entry| read(bucket, entry)));
            let last = page
                .ids
                .last()
                .and_then(|entry| LogPosition::parse(&entry.id));
            // A stream is trimmed in steps, and so may be somewhat longer than this.
            if page.ids.len() < PAGE || last.is_none() || ended.len() >= 2 * ENDED_LENGTH {
                return Ok(ended);
            }
            from = last;
        }
    }
}

/// `None`: raincheck did not write the entry.
fn read(bucket: u16, entry: &StreamId) -> Option<Ended> {
    let field = |name| entry.map.get(name).cloned();
    let id: String = from_redis_value(field("i")?).ok()?;
    let entry_bytes: Vec<u8> = from_redis_value(field("e")?).ok()?;
    let at = LogPosition::parse(&entry.id)?.into();
    Some(Ended {
        place: HistoryPlace { bucket, at },
        id: TaskId::parse(&id)?,
        entry: entry_bytes.into(),
    })
}
