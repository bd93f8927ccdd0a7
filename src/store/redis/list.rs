//! The listed tasks of a caller, or a session: a sorted set by expiry in each bucket.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;

use super::replies::parse_id;
use super::{Redis, SCAN};
use crate::store::error::StoreError;
use crate::task::id::{Caller, TaskId};

impl Redis {
    /// The tasks of all buckets that have not expired by the clock of Redis.
    pub(super) async fn list(&self, caller: &Caller) -> Result<Vec<(u64, TaskId)>, StoreError> {
        let lists = self.keys.buckets().map(|bucket| async move {
            let key = self.keys.list(bucket, caller);
            self.list_in(&key).await
        });
        let found = try_join_all(lists).await?;
        let mut listed: Vec<_> = found.into_iter().flatten().collect();
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

    /// Reads a sorted set in several commands, so that no single command holds up the others for long.
    async fn list_in(&self, key: &str) -> Result<BTreeSet<(u64, TaskId)>, StoreError> {
        let mut cursor = 0_u64;
        // A scan may return a member twice.
        let mut found = BTreeSet::new();
        loop {
            let mut command = redis::cmd("ZSCAN");
            command.arg(key).arg(cursor).arg("COUNT").arg(SCAN);
            let (next, some): (u64, Vec<(String, u64)>) = self.link.query(key, &command).await?;
            for (text, expires_ms) in some {
                found.insert((expires_ms, parse_id(&text)?));
            }
            if next == 0 {
                return Ok(found);
            }
            cursor = next;
        }
    }
}
