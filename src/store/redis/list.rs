//! The listed tasks of a caller, or a session: a sorted set by expiry in each bucket.

use futures_util::future::try_join_all;

use super::replies::parse_id;
use super::{Redis, SCAN};
use crate::store::error::StoreError;
use crate::store::{ListPlace, in_order};
use crate::task::id::Caller;

impl Redis {
    /// The tasks of all buckets that come after this place and have not expired by the clock of Redis.
    pub(super) async fn list(
        &self,
        caller: &Caller,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        let lists = self.keys.buckets().map(|bucket| async move {
            let key = self.keys.list(bucket, caller);
            self.list_in(&key, after, limit).await
        });
        // One error fails the list: without the tasks of one bucket it would look complete.
        let found = try_join_all(lists).await?;
        let mut listed = in_order(found.into_iter().flatten().collect(), after, limit);
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        // The time is read last, so that tasks that expired meanwhile are left out.
        let time: (u64, u64) = self
            .link
            .query(self.keys.live(), &redis::cmd("TIME"))
            .await?;
        let now_ms = time.0.saturating_mul(1000).saturating_add(time.1 / 1000);
        listed.retain(|(expires_ms, _)| *expires_ms > now_ms);
        Ok(listed)
    }

    /// Reads a sorted set from its end, in several commands, so that no single command holds up the others for long. The
    /// set has tasks of one expiry in the order of their ids, as a list has them.
    async fn list_in(
        &self,
        key: &str,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<Vec<ListPlace>, StoreError> {
        let highest = after.map_or_else(
            || "+inf".to_owned(),
            |(expires_ms, _)| expires_ms.to_string(),
        );
        // The place itself is among the first that are read.
        let page = SCAN.min(limit.saturating_add(usize::from(after.is_some())));
        let (mut found, mut offset) = (Vec::new(), 0);
        while found.len() < limit {
            let mut command = redis::cmd("ZRANGE");
            command.arg(key).arg(&highest).arg("-inf");
            command.arg("BYSCORE").arg("REV").arg("LIMIT");
            command.arg(offset).arg(page).arg("WITHSCORES");
            // New tasks move others to the next page, where they are read again.
            let some: Vec<(String, u64)> = self.link.query(key, &command).await?;
            for (text, expires_ms) in &some {
                let place = (*expires_ms, parse_id(text)?);
                if after.is_none_or(|after| place < after) {
                    found.push(place);
                }
            }
            if some.len() < page {
                break;
            }
            offset += page;
        }
        Ok(found)
    }
}
