//! The keys of an issuer: a JWK Set (RFC 7517), of which only what can verify a token counts. Pure.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::ParsedPublicKey;

use super::algorithm::Algorithm;
use crate::mcp::base64::decode_url;
use crate::mcp::json::Object;

/// Keys beyond these are not looked at.
const KEYS_MAX: usize = 64;

/// The keys that an issuer publishes.
#[derive(Debug)]
pub(super) struct KeySet {
    keys: Vec<Key>,
    /// The digest of the text that the keys were read from. It distinguishes a set from the one before.
    pub(super) digest: [u8; 32],
}

#[derive(Debug)]
struct Key {
    id: Option<Box<str>>,
    algorithm: Algorithm,
    public: ParsedPublicKey,
}

/// A key that may have signed a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signer<'k> {
    pub(super) algorithm: Algorithm,
    pub(super) key: &'k ParsedPublicKey,
}

impl KeySet {
    /// The keys for these algorithms. `None`: it is no JWK Set, or has no key of use.
    pub(super) fn parse(text: &str, allowed: &[Algorithm]) -> Option<Self> {
        let set = Object::parse(text).ok()?;
        let listed: Vec<Object<'_>> = serde_json::from_str(set.get("keys")?.get()).ok()?;
        let keys = listed.iter().take(KEYS_MAX);
        // A key of another type or use does not make the others useless (RFC 7517, section 5).
        let keys: Vec<Key> = keys.filter_map(|key| read(key, allowed)).collect();
        let hash = digest(&SHA256, text.as_bytes());
        (!keys.is_empty()).then(|| Self {
            keys,
            digest: hash.as_ref().first_chunk().copied().unwrap_or_default(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The key of that id. A token without one can only be of the one key that there is.
    pub(super) fn signer(&self, id: Option<&str>) -> Option<Signer<'_>> {
        let mut named = self.keys.iter().filter(|key| match id {
            Some(id) => key.id.as_deref() == Some(id),
            None => true,
        });
        let key = named.next()?;
        // Of two keys of one id it is not said which.
        named.next().is_none().then_some(Signer {
            algorithm: key.algorithm,
            key: &key.public,
        })
    }
}

/// Reads a usable key. Its algorithm is the one that the key itself names, or else the first allowed one that fits:
/// never the token's.
fn read(jwk: &Object<'_>, allowed: &[Algorithm]) -> Option<Key> {
    if jwk.is_ambiguous(&[
        "kty", "use", "key_ops", "alg", "kid", "n", "e", "crv", "x", "y",
    ]) {
        return None;
    }
    if jwk.contains("use") && jwk.get_str("use")? != "sig" {
        return None;
    }
    if let Some(operations) = jwk.get("key_ops") {
        let operations: Vec<String> = serde_json::from_str(operations.get()).ok()?;
        operations.iter().find(|operation| *operation == "verify")?;
    }
    let fits = fitting(jwk)?;
    let mut candidates = allowed.iter().copied().filter(|algorithm| fits(*algorithm));
    let algorithm = match jwk.get("alg") {
        Some(_) => {
            // RFC 9864 renames what EdDSA does with this curve.
            let name = jwk.get_str("alg")?;
            let name = if name == "Ed25519" { "EdDSA" } else { &*name };
            candidates.find(|algorithm| algorithm.name() == name)?
        }
        None => candidates.next()?,
    };
    let part = |name: &str| decode_url(&jwk.get_str(name)?);
    let key = if algorithm.is_rsa() {
        algorithm.rsa_key(&part("n")?, &part("e")?)
    } else if algorithm == Algorithm::EdDsa {
        algorithm.key(&part("x")?)
    } else {
        // The byte 4 begins an uncompressed point (SEC 1), the form that the verifier reads.
        let point = [&[4_u8][..], &part("x")?, &part("y")?].concat();
        algorithm.key(&point)
    };
    Some(Key {
        id: jwk.get_str("kid").map(|id| id.as_ref().into()),
        algorithm,
        public: key?,
    })
}

/// Which algorithms a key of that type is for.
fn fitting(jwk: &Object<'_>) -> Option<fn(Algorithm) -> bool> {
    let curve = jwk.get_str("crv");
    Some(match (&*jwk.get_str("kty")?, curve.as_deref()) {
        ("RSA", _) => Algorithm::is_rsa,
        ("EC", Some("P-256")) => |algorithm| algorithm == Algorithm::Es256,
        ("EC", Some("P-384")) => |algorithm| algorithm == Algorithm::Es384,
        ("OKP", Some("Ed25519")) => |algorithm| algorithm == Algorithm::EdDsa,
        _ => return None,
    })
}
