//! The keys that all replicas of a sealed store share. The store itself keeps them, sealed.

use std::time::Duration;

use super::Store;
use super::error::StoreError;
use super::kv::{Kind, Name};
use super::record::SEALS_CALLERS;
use super::seal::{KeyId, Sealer};
use super::sealed_value::{Clear, of_value, open, seal};

/// The keys that all replicas share. A store keeps a copy for each seal key, sealed under that key: a replica that
/// starts with a new seal key and the earlier one makes the copy for replicas that start with the new one alone.
pub(super) struct KeptKeys {
    pub(super) digests: [u8; 32],
    pub(super) callers: [u8; 32],
}

/// A copy of the keys in the store. An earlier version, which kept the key of callers in the clear, kept the key of digests
/// alone.
pub(super) struct KeyCopy {
    digests: [u8; 32],
    pub(super) callers: Option<[u8; 32]>,
}

pub(super) async fn kept_keys(
    store: &dyn Store,
    sealer: &Sealer,
    clear: Clear,
    now_ms: u64,
) -> Result<KeptKeys, StoreError> {
    let unsealable = || StoreError::Corrupt("the keys that are kept sealed");
    let derived = |purpose| sealer.derived(purpose).ok_or_else(unsealable);
    let found = copy(store, sealer).await?;
    let callers = match (clear, found.as_ref().map(|copy| copy.callers)) {
        (_, Some(Some(callers))) => callers,
        // The copy of an earlier version, or replicas that do not seal: callers have their tasks under the key in the
        // clear. Such a copy is sealed, too, so that nobody else can bring it about.
        (_, Some(None)) | (Clear::Read, None) => store.caller_key().await?,
        // Replicas that start at the same time derive the same keys.
        (Clear::Refused, None) => derived("callers")?,
    };
    let digests = match found {
        Some(copy) => copy.digests,
        None => derived("digests")?,
    };
    // Written at each start: a new seal key has no copy yet, and the one that exists expires some day.
    if let Some(current) = sealer.key_ids().next() {
        let name = copy_for(current);
        let copy = seal(sealer, &of_value(&name), &[digests, callers].concat())?;
        let lifetime = u64::try_from(COPY_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        store.put(name, copy, now_ms + lifetime).await?;
    }
    Ok(KeptKeys { digests, callers })
}

pub(super) async fn copy(
    store: &dyn Store,
    sealer: &Sealer,
) -> Result<Option<KeyCopy>, StoreError> {
    for id in sealer.key_ids() {
        let name = copy_for(id);
        if let Some(copy) = store.find(name).await? {
            let copy = open(Some(sealer), Clear::Refused, &of_value(&name), copy)?;
            let (digests, rest) = copy
                .split_first_chunk()
                .ok_or(StoreError::Corrupt("the keys that are kept sealed"))?;
            return Ok(Some(KeyCopy {
                digests: *digests,
                callers: rest.first_chunk().copied(),
            }));
        }
    }
    Ok(None)
}

/// Removes the key of callers that an earlier version left in the clear, once no replica of that version runs.
pub(super) async fn forget_clear_caller_key(store: &dyn Store) -> Result<(), StoreError> {
    // Without an incarnation the beat renews nothing: it only reads the live set.
    let living = store.beat(None, Duration::ZERO).await?.living;
    // A replica whose name shows no format is of an earlier version, and `None` is less than any format.
    if living
        .iter()
        .all(|replica| replica.reads() >= Some(SEALS_CALLERS))
    {
        store.forget_caller_key().await?;
    }
    Ok(())
}

fn copy_for(key: KeyId) -> Name {
    let id = u64::from_be_bytes(key);
    Name::of(Kind::DigestKey, &[&format!("{id:016x}")])
}

/// The time that a store keeps a copy of the key of digests from the last start on: longer than a service stands
/// still.
const COPY_LIFETIME: Duration = Duration::from_hours(24 * 365 * 10);
