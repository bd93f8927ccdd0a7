//! Encrypts fields that must not be readable in a store: session ids of the wrapped server.
//!
//! Each task has its own AES-256-GCM key, derived from the master key by HKDF-SHA256. A sealed field is
//! bound to its namespace, task, caller and field name, so that it cannot be moved elsewhere.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;

use super::error::StoreError;
use super::random::random_bytes;
use crate::mcp::base64;
use crate::task::id::{Caller, TaskId};

/// A master key.
pub type MasterKey = [u8; 32];

/// Seals under the current master key and opens under the previous one too, so that an operator can
/// change the key while replicas run.
#[derive(Clone)]
pub struct Sealer {
    namespace: Box<str>,
    current: hkdf::Prk,
    previous: Option<hkdf::Prk>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

/// Where a sealed field belongs. It opens nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct SealedField<'a> {
    pub task: TaskId,
    pub caller: &'a Caller,
    pub field: &'a str,
}

impl Sealer {
    pub fn new(namespace: &str, current: &MasterKey, previous: Option<&MasterKey>) -> Self {
        let extract = |master: &MasterKey| {
            hkdf::Salt::new(hkdf::HKDF_SHA256, namespace.as_bytes()).extract(master)
        };
        Self {
            namespace: namespace.into(),
            current: extract(current),
            previous: previous.map(extract),
        }
    }

    pub fn seal(&self, field: SealedField<'_>, text: &str) -> Result<Box<str>, StoreError> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let mut sealed = text.as_bytes().to_vec();
        key(&self.current, field)
            .and_then(|key| {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_append_tag(nonce, self.bound_to(field), &mut sealed)
                    .ok()
            })
            .ok_or(StoreError::Corrupt("a field that cannot be sealed"))?;
        let mut bytes = nonce.to_vec();
        bytes.append(&mut sealed);
        let mut out = String::with_capacity(bytes.len() * 2);
        base64::encode(&bytes, &mut out);
        Ok(out.into())
    }

    /// The text, or `None` if it was sealed under an unknown key or for another field, or is damaged.
    pub fn open(&self, field: SealedField<'_>, sealed: &str) -> Option<String> {
        let bytes = base64::decode(sealed)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let masters = [Some(&self.current), self.previous.as_ref()];
        masters.into_iter().flatten().find_map(|master| {
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let mut sealed = sealed.to_vec();
            let opened = key(master, field)?
                .open_in_place(nonce, self.bound_to(field), &mut sealed)
                .ok()?;
            String::from_utf8(opened.to_vec()).ok()
        })
    }

    fn bound_to(&self, field: SealedField<'_>) -> Aad<Vec<u8>> {
        let mut bound = Vec::with_capacity(128);
        for part in [
            self.namespace.as_bytes(),
            field.task.as_bytes(),
            field.caller.as_bytes(),
            field.field.as_bytes(),
        ] {
            // The length comes first, so that no two fields produce the same bytes.
            bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bound.extend_from_slice(part);
        }
        Aad::from(bound)
    }
}

fn key(master: &hkdf::Prk, field: SealedField<'_>) -> Option<LessSafeKey> {
    let info = [&field.task.as_bytes()[..]];
    let derived = master.expand(&info, &AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(derived)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>(task: TaskId, caller: &'a Caller, field: &'a str) -> SealedField<'a> {
        SealedField {
            task,
            caller,
            field,
        }
    }

    #[test]
    fn it_opens_where_it_belongs_and_nowhere_else() {
        let sealer = Sealer::new("ns", &[1; 32], None);
        let (task, caller) = (TaskId::random(), Caller::from_bytes([3; 16]));
        let here = place(task, &caller, "resume");
        let sealed = sealer.seal(here, "session").unwrap();
        assert!(!sealed.contains("session"));
        assert_ne!(sealed, sealer.seal(here, "session").unwrap());
        assert_eq!(sealer.open(here, &sealed).as_deref(), Some("session"));

        let (other, stranger) = (TaskId::random(), Caller::from_bytes([4; 16]));
        for elsewhere in [
            place(other, &caller, "resume"),
            place(task, &stranger, "resume"),
            place(task, &caller, "params"),
        ] {
            assert_eq!(sealer.open(elsewhere, &sealed), None);
        }
        for other in [
            Sealer::new("other", &[1; 32], None),
            Sealer::new("ns", &[2; 32], None),
        ] {
            assert_eq!(other.open(here, &sealed), None);
        }
        assert_eq!(sealer.open(here, "AAAA"), None);
    }

    #[test]
    fn a_key_can_be_changed_while_replicas_run() {
        let (task, caller) = (TaskId::random(), Caller::from_bytes([3; 16]));
        let here = place(task, &caller, "resume");
        let sealed = Sealer::new("ns", &[1; 32], None).seal(here, "s").unwrap();
        let later = Sealer::new("ns", &[2; 32], Some(&[1; 32]));
        assert_eq!(later.open(here, &sealed).as_deref(), Some("s"));
        let again = later.seal(here, "s").unwrap();
        assert_eq!(Sealer::new("ns", &[1; 32], None).open(here, &again), None);
    }
}
