//! The permanent facts of the namespace, in its one hash without an expiry. A replica that runs writes them again when Redis was
//! emptied, so that replicas that start later find what this one goes on with.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::keys::Keys;
use super::link::Link;
use super::open::RedisOptions;
use super::replies::UNREADABLE;
use crate::base::lock::Mutex;
use crate::store::error::StoreError;
use crate::store::random::random_bytes;

/// The name of the fact under which callers are known.
const CALLER_KEY: &str = "caller_key";

/// The facts as this replica found or wrote them.
pub(super) struct Facts {
    by_name: Mutex<BTreeMap<&'static str, Vec<u8>>>,
    /// Redis may have lost them.
    are_doubted: AtomicBool,
}

impl Facts {
    pub(super) fn new(buckets: u16, options: &RedisOptions) -> Self {
        let serves = options.serves.iter();
        let serves = serves.map(|serves| ("serves", serves.clone().into_bytes()));
        let buckets = ("buckets", buckets.to_string().into_bytes());
        Self {
            by_name: Mutex::new(serves.chain([buckets]).collect()),
            are_doubted: AtomicBool::new(false),
        }
    }

    /// Returns the key under which callers are known. Without one, the namespace gets a new one.
    pub(super) async fn caller_key(
        &self,
        link: &Link,
        keys: &Keys,
    ) -> Result<[u8; 32], StoreError> {
        let found = settle(link, keys, CALLER_KEY, &random_bytes::<32>()?).await?;
        let key = (*found).try_into().map_err(|_| UNREADABLE)?;
        self.by_name.lock().insert(CALLER_KEY, found);
        Ok(key)
    }

    pub(super) async fn forget_caller_key(
        &self,
        link: &Link,
        keys: &Keys,
    ) -> Result<(), StoreError> {
        self.by_name.lock().remove(CALLER_KEY);
        let meta = keys.meta();
        let mut command = redis::cmd("HDEL");
        command.arg(meta).arg(CALLER_KEY);
        link.query::<u64>(meta, &command).await.map(drop)
    }

    /// Writes the facts again where they are lost. `is_new`: Redis did not have the lease of this replica.
    pub(super) async fn keep(&self, link: &Link, keys: &Keys, is_new: bool) {
        if !is_new && !self.are_doubted.load(Ordering::Relaxed) {
            return;
        }
        self.are_doubted.store(true, Ordering::Relaxed);
        let facts = self.by_name.lock().clone();
        for (name, ours) in facts {
            match settle(link, keys, name, &ours).await {
                Ok(theirs) if theirs == ours => {}
                Ok(_) => warn!(
                    name,
                    "another replica has written this anew, as if Redis was emptied: start this replica again, because neither finds \
                     the tasks of the other"
                ),
                // The next heartbeat tries again.
                Err(_) => return,
            }
        }
        self.are_doubted.store(false, Ordering::Relaxed);
    }
}

/// Sets a fact unless the namespace has it. Returns the one that it has.
async fn settle(link: &Link, keys: &Keys, name: &str, ours: &[u8]) -> Result<Vec<u8>, StoreError> {
    let meta = keys.meta();
    let mut get = redis::cmd("HGET");
    get.arg(meta).arg(name);
    // Read before it is written, because a full server refuses writes and answers reads.
    let mut found: Option<Vec<u8>> = link.query(meta, &get).await?;
    if found.is_none() {
        let mut set = redis::cmd("HSETNX");
        set.arg(meta).arg(name).arg(ours);
        link.query::<u64>(meta, &set).await?;
        // Another replica may have set it first, so the stored one counts.
        found = link.query(meta, &get).await?;
    }
    found.ok_or(UNREADABLE)
}
