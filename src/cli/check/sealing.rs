//! What of the store can be read without the seal key, and whether the replicas have one key.

use crate::app::OtherReplicas;
use crate::config::{Location, Seal, StoreSettings};

/// `None`: nothing is stored outside of the process.
pub(super) fn sealing(
    store: &StoreSettings,
    others: OtherReplicas,
) -> Option<Result<String, String>> {
    let beside = match store.location {
        Location::Memory => return None,
        Location::Embedded(_) | Location::Slots(_) => Some("under the key beside the file"),
        Location::Redis { .. } => None,
    };
    if others == OtherReplicas::Different {
        let text =
            "another replica has another store.seal_key: neither can read what the other one seals";
        return Some(Err(text.to_owned()));
    }
    Some(Ok(match (store.seal, &store.seal_key) {
        (Seal::Off, _) => "off: who reads the store reads arguments and results".to_owned(),
        (Seal::Payloads, None) => format!("payloads, {}", beside.unwrap_or("under no key")),
        (Seal::Payloads, Some(_)) => {
            let same = match others {
                OtherReplicas::Same => ", which the other replicas have, too",
                OtherReplicas::Keyless | OtherReplicas::Different => "",
            };
            let rotates = match store.seal_key_previous {
                Some(_) => "; what store.seal_key_previous sealed is read",
                None => "",
            };
            format!("payloads, under store.seal_key{same}{rotates}")
        }
    }))
}
