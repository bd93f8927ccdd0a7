//! Encrypts what must not be readable in a store.
//!
//! Each task, and each name of a value, has an AES-256-GCM key of its own, derived from the master key by HKDF-SHA256. The
//! nonces are random, so that one key is good for 2^32 values: that is a limit for one task, which no task reaches, and not
//! for the service. A sealed value is bound to its namespace and to where it belongs, so that it cannot be moved elsewhere.
//!
//! The form, in bytes: the id of the master key (8), the nonce (12), the ciphertext, the tag (16).

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::{hkdf, hmac};
use bytes::{Buf as _, Bytes, BytesMut};

use super::error::StoreError;
use super::random::random_bytes;
use crate::mcp::base64;

/// A master key.
pub type MasterKey = [u8; 32];

/// The name of a master key, which reveals nothing about the key.
pub type KeyId = [u8; 8];

/// Seals under the first master key, and opens under all of them, so that an operator can change the key while replicas
/// run.
#[derive(Clone)]
pub struct Sealer {
    namespace: Box<str>,
    current: SealingKey,
    earlier: Arc<[SealingKey]>,
}

#[derive(Clone)]
struct SealingKey {
    id: KeyId,
    master: hkdf::Prk,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

/// Where a sealed value belongs. The value opens nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// The kind of the value, such as "record".
    pub kind: &'a str,
    /// The task, or the digest of the name.
    pub id: &'a [u8; 16],
    /// The caller of the task; empty if the name stands for the caller, too.
    pub caller: &'a [u8],
    /// The place among several values of the same kind and id: a fence, or the number of a log entry.
    pub number: u64,
}

/// Why a sealed value does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unopened {
    /// The value was sealed under a key that this process does not have.
    UnknownKey,
    /// The value was altered, or belongs elsewhere.
    Altered,
}

impl Sealer {
    pub fn new(namespace: &str, current: &MasterKey, earlier: &[&MasterKey]) -> Self {
        let key = |master: &MasterKey| SealingKey {
            id: key_id(master),
            master: extract(namespace.as_bytes(), master),
        };
        Self {
            namespace: namespace.into(),
            current: key(current),
            earlier: earlier.iter().map(|master| key(master)).collect(),
        }
    }

    /// The ids of the keys, the key that seals first.
    pub fn key_ids(&self) -> impl Iterator<Item = KeyId> {
        self.keys().map(|key| key.id)
    }

    /// Thirty-two bytes that only holders of the oldest key can compute.
    pub fn derived(&self, purpose: &str) -> Option<[u8; 32]> {
        // A replica with a new key and the earlier one derives the same bytes as a replica with the earlier one alone.
        let oldest = self.earlier.last().unwrap_or(&self.current);
        let info = [b"raincheck derived".as_slice(), purpose.as_bytes()];
        let mut derived = [0; 32];
        let expanded = oldest.master.expand(&info, hkdf::HKDF_SHA256).ok()?;
        expanded.fill(&mut derived).ok()?;
        Some(derived)
    }

    /// Appends the sealed form of `clear` to `out`.
    pub fn seal(
        &self,
        binding: &Binding<'_>,
        clear: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        out.reserve(OVERHEAD + clear.len());
        out.extend_from_slice(&self.current.id);
        out.extend_from_slice(&nonce);
        // The output may have a beginning of the caller's, which stays in the clear.
        let begin = out.len();
        out.extend_from_slice(clear);
        let tag = out.get_mut(begin..).and_then(|text| {
            // The key belongs to one task or name, which has far fewer values than random nonces allow.
            let nonce = Nonce::assume_unique_for_key(nonce);
            let key = self.current.of(binding)?;
            key.seal_in_place_separate_tag(nonce, self.bound_to(binding), text)
                .ok()
        });
        let tag = tag.ok_or(StoreError::Corrupt("a value that cannot be sealed"))?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens a sealed value, in place if nothing else holds its bytes.
    pub fn open(&self, binding: &Binding<'_>, mut sealed: Bytes) -> Result<Bytes, Unopened> {
        let (id, rest) = sealed.split_first_chunk().ok_or(Unopened::Altered)?;
        let nonce = rest.first_chunk().ok_or(Unopened::Altered)?;
        let key = self.keys().find(|key| key.id == *id);
        let key = key.ok_or(Unopened::UnknownKey)?.of(binding);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        sealed.advance(id.len() + NONCE_LEN);
        let mut text = BytesMut::from(sealed);
        let opened = key.and_then(|key| {
            let opened = key.open_in_place(nonce, self.bound_to(binding), &mut text);
            opened.ok().map(|opened| opened.len())
        });
        text.truncate(opened.ok_or(Unopened::Altered)?);
        Ok(text.freeze())
    }

    /// Seals a text as a text.
    pub fn seal_text(&self, binding: &Binding<'_>, text: &str) -> Result<Box<str>, StoreError> {
        let mut sealed = Vec::new();
        self.seal(binding, text.as_bytes(), &mut sealed)?;
        let mut out = String::with_capacity(sealed.len() * 2);
        base64::encode(&sealed, &mut out);
        Ok(out.into())
    }

    /// Opens what [`Self::seal_text`] sealed. `None` if it was sealed under an unknown key or belongs elsewhere, or is
    /// damaged.
    pub fn open_text(&self, binding: &Binding<'_>, sealed: &str) -> Option<String> {
        let opened = self.open(binding, base64::decode(sealed)?.into()).ok()?;
        String::from_utf8(opened.into()).ok()
    }

    fn keys(&self) -> impl Iterator<Item = &SealingKey> {
        std::iter::once(&self.current).chain(self.earlier.iter())
    }

    fn bound_to(&self, binding: &Binding<'_>) -> Aad<Vec<u8>> {
        let number = binding.number.to_le_bytes();
        let mut bound = Vec::with_capacity(160);
        for part in [
            self.namespace.as_bytes(),
            binding.kind.as_bytes(),
            binding.id,
            binding.caller,
            &number,
        ] {
            // The length comes first, so that no two bindings produce the same bytes.
            bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bound.extend_from_slice(part);
        }
        Aad::from(bound)
    }
}

impl SealingKey {
    /// The key of one task or name.
    fn of(&self, binding: &Binding<'_>) -> Option<LessSafeKey> {
        let info = [&binding.id[..]];
        let derived = self.master.expand(&info, &AES_256_GCM).ok()?;
        // This kind of key takes the nonce with each value. Random nonces need that: replicas share no counter.
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

/// The first step of HKDF (RFC 5869, section 2.2), once. `hkdf::Salt::extract` puts it off, and repeats it with each key
/// that is derived.
fn extract(salt: &[u8], master: &MasterKey) -> hkdf::Prk {
    let salt = hmac::Key::new(hmac::HMAC_SHA256, salt);
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, hmac::sign(&salt, master).as_ref())
}

/// Returns the fingerprint of a master key: it distinguishes two keys, and reveals nothing about either.
pub fn fingerprint(master: &MasterKey) -> [u8; 32] {
    let text = [&b"raincheck: a fingerprint of "[..], master].concat();
    let mut fingerprint = [0; 32];
    let hash = digest(&SHA256, &text);
    for (to, from) in fingerprint.iter_mut().zip(hash.as_ref()) {
        *to = *from;
    }
    fingerprint
}

fn key_id(master: &MasterKey) -> KeyId {
    let mut id = KeyId::default();
    for (to, from) in id.iter_mut().zip(fingerprint(master)) {
        *to = from;
    }
    id
}

/// The number of bytes by which a sealed value is longer.
const OVERHEAD: usize = size_of::<KeyId>() + NONCE_LEN + 16;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Binding<'_> = Binding {
        kind: "record",
        id: &[7; 16],
        caller: &[3; 16],
        number: 1,
    };

    fn sealed(sealer: &Sealer) -> Bytes {
        let mut out = Vec::new();
        sealer.seal(&HERE, b"session", &mut out).unwrap();
        out.into()
    }

    #[test]
    fn keys_are_extracted_as_hkdf_says() {
        for salt in ["", "ns", &"n".repeat(100)] {
            let whole = hkdf::Salt::new(hkdf::HKDF_SHA256, salt.as_bytes()).extract(&[1; 32]);
            let [ours, whole] = [extract(salt.as_bytes(), &[1; 32]), whole].map(|key| {
                let mut derived = [0; 32];
                let expanded = key.expand(&[b"info"], hkdf::HKDF_SHA256).unwrap();
                expanded.fill(&mut derived).unwrap();
                derived
            });
            assert_eq!(ours, whole, "{salt}");
        }
    }

    #[test]
    fn it_opens_where_it_belongs_and_nowhere_else() {
        let sealer = Sealer::new("ns", &[1; 32], &[]);
        let value = sealed(&sealer);
        assert!(!value.windows(7).any(|part| part == b"session"));
        assert_ne!(value, sealed(&sealer));
        assert_eq!(value.len(), b"session".len() + OVERHEAD);
        assert_eq!(sealer.open(&HERE, value.clone()).unwrap(), "session");
        for elsewhere in [
            Binding {
                kind: "result",
                ..HERE
            },
            Binding {
                id: &[8; 16],
                ..HERE
            },
            Binding {
                caller: &[4; 16],
                ..HERE
            },
            Binding {
                caller: &[],
                ..HERE
            },
            Binding { number: 2, ..HERE },
        ] {
            let refused = sealer.open(&elsewhere, value.clone());
            assert_eq!(refused, Err(Unopened::Altered), "{elsewhere:?}");
        }
        let other = Sealer::new("other", &[1; 32], &[]);
        assert_eq!(other.open(&HERE, value.clone()), Err(Unopened::Altered));
        let other = Sealer::new("ns", &[2; 32], &[]);
        assert_eq!(other.open(&HERE, value), Err(Unopened::UnknownKey));
    }

    #[test]
    fn no_altered_bit_and_no_cut_goes_unnoticed() {
        let sealer = Sealer::new("ns", &[1; 32], &[]);
        let value = sealed(&sealer);
        for bit in 0..value.len() * 8 {
            let mut altered = value.to_vec();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(sealer.open(&HERE, altered.into()).is_err(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(sealer.open(&HERE, value.slice(..length)).is_err());
        }
    }

    #[test]
    fn a_key_can_be_changed_while_replicas_run() {
        let (first, both, second) = (
            Sealer::new("ns", &[1; 32], &[]),
            Sealer::new("ns", &[2; 32], &[&[1; 32]]),
            Sealer::new("ns", &[2; 32], &[]),
        );
        assert_eq!(both.open(&HERE, sealed(&first)).unwrap(), "session");
        assert_eq!(second.open(&HERE, sealed(&both)).unwrap(), "session");
        assert_eq!(first.open(&HERE, sealed(&both)), Err(Unopened::UnknownKey));
        assert_eq!(first.derived("x"), both.derived("x"));
        assert_ne!(first.derived("x"), first.derived("y"));
        assert_ne!(first.derived("x"), second.derived("x"));
    }

    #[test]
    fn a_text_stays_a_text() {
        let sealer = Sealer::new("ns", &[1; 32], &[]);
        let text = sealer.seal_text(&HERE, "session").unwrap();
        assert_eq!(sealer.open_text(&HERE, &text).as_deref(), Some("session"));
        assert_eq!(sealer.open_text(&HERE, "AAAA"), None);
        assert_eq!(sealer.open_text(&HERE, "\u{1}"), None);
    }
}
