//! The due index: a sorted set by time in each bucket.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::Redis;
use super::replies::parse_id;
use crate::store::error::StoreError;
use crate::task::id::TaskId;

/// The number of buckets whose due index one call reads.
const BUCKETS: u16 = 8;

/// The number of members that one command reads: 260 KB, so that other commands and a slow network get along with it.
const PAGE: usize = 4096;

impl Redis {
    /// The tasks that are due in some of the buckets, and the next call sees the next buckets.
    pub(super) async fn read_due(
        &self,
        now_ms: u64,
        limit: usize,
    ) -> Result<Vec<TaskId>, StoreError> {
        let step = BUCKETS.min(self.keys.count());
        // The counter may wrap: 65,536 is a multiple of both numbers of buckets.
        let from = self.due_next.fetch_add(step, Ordering::Relaxed);
        let looks = (0..step)
            .map(|ahead| from.wrapping_add(ahead))
            .map(|bucket| bucket.checked_rem(self.keys.count()).unwrap_or(0))
            .map(|bucket| self.due_in(bucket, now_ms, limit));
        let mut due = Vec::new();
        let mut failed = None;
        for found in join_all(looks).await {
            match found {
                Ok(found) => due.extend(found),
                Err(error) => failed = Some(error),
            }
        }
        // A slot without a server must not hide the overdue tasks of other slots.
        if let Some(error) = failed.filter(|_| due.is_empty()) {
            return Err(error);
        }
        due.sort_unstable_by_key(|(id, due_ms)| (*due_ms, *id));
        due.truncate(limit);
        Ok(due.into_iter().map(|(id, _)| id).collect())
    }

    /// The due tasks of one bucket, with their times. Reads them in several commands, so that no single command holds up
    /// the others for long.
    async fn due_in(
        &self,
        bucket: u16,
        now_ms: u64,
        limit: usize,
    ) -> Result<HashMap<TaskId, u64>, StoreError> {
        let key = self.keys.due(bucket);
        // A task that moves between two commands may be in both pages, or in none: then the next call names it.
        let mut due = HashMap::new();
        let mut offset = 0;
        while offset < limit {
            let page = PAGE.min(limit - offset);
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(&key).arg("-inf").arg(now_ms).arg("WITHSCORES");
            command.arg("LIMIT").arg(offset).arg(page);
            let found: Vec<(String, u64)> = self.link.query(&key, &command).await?;
            for (text, due_ms) in &found {
                due.insert(parse_id(text)?, *due_ms);
            }
            if found.len() < page {
                break;
            }
            offset += page;
        }
        Ok(due)
    }
}
