//! Warns the operator when replicas of one service have different `store.seal_key`s: then none of them can continue a
//! call of another one, and nothing else would report it until a replica dies.

use std::time::Duration;

use bytes::Bytes;
use tracing::warn;

use crate::config::{SealKey, StoreSettings};
use crate::store::key_value::KeyValue;
use crate::store::kv::{Kind, Name};
use crate::store::seal;

/// The pause between two looks.
const LOOK: Duration = Duration::from_hours(1);

/// The time for which the store keeps the fingerprint of the key of the last replica that checked.
const REMEMBERED: Duration = Duration::from_hours(2);

/// Compares the key with that of the other replicas, for as long as the process runs.
pub(super) async fn tell_if_unequal(kv: KeyValue, settings: StoreSettings) {
    let Some(key) = &settings.seal_key else {
        return;
    };
    let (own, previous) = (
        fingerprint(key),
        settings.seal_key_previous.as_ref().map(fingerprint),
    );
    let name = Name::of(Kind::SealKey, &[]);
    loop {
        match kv.find(name).await {
            // During a rotation some replicas still have the previous key, and this one can read what they seal.
            Ok(Some(found)) if found != own && Some(&found) != previous.as_ref() => warn!(
                "another replica has another store.seal_key: neither can carry on the calls of the other one"
            ),
            Ok(_) => {
                // The next look writes what this one could not.
                let _ = kv.put(name, own.clone(), REMEMBERED).await;
            }
            Err(_away) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn fingerprint(key: &SealKey) -> Bytes {
    seal::fingerprint(key.expose()).to_vec().into()
}
