//! The check of the seal: the parts of the store that can be read without the seal key, and whether the replicas have
//! one key.

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
    // Sessions with the server are sealed also where `store.seal` is off, so this comes before it.
    if others == OtherReplicas::Different {
        let text =
            "another replica has another store.seal_key: neither can read what the other one seals";
        return Some(Err(text.to_owned()));
    }
    let (seal, also) = match store.seal {
        Seal::Off => {
            return Some(Ok(
                "off: who reads the store reads arguments and results".to_owned()
            ));
        }
        Seal::Mixed => (
            "mixed",
            "; what is not sealed is read, too, until you set \"payloads\"",
        ),
        Seal::Payloads => ("payloads", ""),
    };
    let key = match (&store.seal_key, others) {
        (None, _) => beside.unwrap_or("under no key"),
        (Some(_), OtherReplicas::Same) => {
            "under store.seal_key, which the other replicas have, too"
        }
        (Some(_), OtherReplicas::Keyless | OtherReplicas::Different) => "under store.seal_key",
    };
    let rotates = match (&store.seal_key, &store.seal_key_previous) {
        (Some(_), Some(_)) => "; what store.seal_key_previous sealed is read",
        (Some(_) | None, Some(_) | None) => "",
    };
    Some(Ok(format!("{seal}, {key}{rotates}{also}")))
}
