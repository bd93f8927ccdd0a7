//! The subscriptions of callers, as a store keeps them: one value for each caller, which every replica reads and changes.

use std::time::Duration;

use bytes::Bytes;

use super::error::StoreError;
use super::key_value::KeyValue;
use super::kv::{Kind, Name};
use crate::task::events::subscriptions::Subscriptions;
use crate::task::id::Caller;

/// The number of times that a change is decided again because another replica changed the value at the same time.
const CHANGES_MAX: usize = 16;

/// The bytes before the value that distinguish one write from another with the same value.
const NONCE_BYTES: usize = 16;

/// The subscriptions of all callers.
#[derive(Debug, Clone)]
pub struct SubscriptionStore(KeyValue);

impl SubscriptionStore {
    pub fn new(kv: KeyValue) -> Self {
        Self(kv)
    }

    pub async fn of(&self, caller: &Caller) -> Result<Subscriptions, StoreError> {
        read(self.0.find(name(caller)).await?.as_ref())
    }

    /// Changes the caller's subscriptions. `edit` decides again if another change came first.
    pub async fn change<T>(
        &self,
        caller: &Caller,
        now_ms: u64,
        edit: impl Fn(&mut Subscriptions) -> T,
    ) -> Result<T, StoreError> {
        let name = name(caller);
        for _ in 0..CHANGES_MAX {
            let found = self.0.find(name).await?;
            let before = read(found.as_ref())?;
            let mut after = before.clone();
            let decided = edit(&mut after);
            if after == before {
                return Ok(decided);
            }
            let lives_ms = after.expires_ms().unwrap_or_default();
            // An empty list is written for a second and not removed: a removal compares nothing, and could take a new
            // subscription of another replica with it.
            let lifetime = Duration::from_millis(lives_ms.saturating_sub(now_ms).max(1_000));
            let value = written(&after)?;
            // Of two replicas that write at the same time one wins, and the other decides again.
            let is_done = match found {
                Some(found) => self.0.replace(name, found, value, lifetime).await?,
                None => self.0.claim(name, value, lifetime).await?.is_none(),
            };
            if is_done {
                return Ok(decided);
            }
        }
        let why = "the subscriptions of a caller changed again and again";
        Err(StoreError::Unavailable(why.into()))
    }
}

fn name(caller: &Caller) -> Name {
    let by = u128::from_be_bytes(*caller.as_bytes()).to_string();
    Name::of(Kind::Subscriptions, &[&by])
}

fn read(value: Option<&Bytes>) -> Result<Subscriptions, StoreError> {
    let Some(value) = value else {
        return Ok(Subscriptions::default());
    };
    let json = value.get(NONCE_BYTES..).unwrap_or_default();
    serde_json::from_slice(json).map_err(|_| StoreError::Corrupt("the subscriptions of a caller"))
}

fn written(all: &Subscriptions) -> Result<Bytes, StoreError> {
    // Two replicas may write equal lists at the same time, and no two claims of a name may carry the same value.
    let mut out = uuid::Uuid::new_v4().as_bytes().to_vec();
    serde_json::to_writer(&mut out, all)
        .map_err(|_| StoreError::Corrupt("the subscriptions of a caller"))?;
    Ok(out.into())
}
