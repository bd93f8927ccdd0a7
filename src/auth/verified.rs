//! Tokens that were verified, by their hash, so that a token is verified once and not for each request.

use std::sync::Arc;

use super::identity::Identity;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;

/// Tokens in each half. Clients that come back keep their token in the recent one.
const HALF: usize = 4_096;

/// A token that was verified.
#[derive(Debug, Clone)]
pub(super) struct VerifiedToken {
    pub(super) identity: Arc<Identity>,
    /// The issuer's place among all, and the generation of its keys.
    pub(super) issuer: usize,
    pub(super) generation: u64,
}

/// At most twice [`HALF`] tokens: when the recent half is full, the older one is forgotten. Each thread has its own, because
/// threads that share a lock, or the count of an identity's users, wait for each other at every request.
#[derive(Debug, Default)]
pub(super) struct VerifiedTokens {
    halves: Mutex<Halves>,
}

#[derive(Debug, Default)]
struct Halves {
    recent: PrehashedMap<[u8; 32], VerifiedToken>,
    older: PrehashedMap<[u8; 32], VerifiedToken>,
}

impl VerifiedTokens {
    pub(super) fn get(&self, token: &[u8; 32]) -> Option<VerifiedToken> {
        let mut halves = self.halves.lock();
        if let Some(found) = halves.recent.get(token) {
            return Some(found.clone());
        }
        let found = halves.older.remove(token)?;
        // Back into the recent half, so that a token in use outlives the next time that the older half is dropped.
        halves.put(*token, found.clone());
        Some(found)
    }

    pub(super) fn put(&self, token: [u8; 32], verified: VerifiedToken) {
        self.halves.lock().put(token, verified);
    }
}

impl Halves {
    fn put(&mut self, token: [u8; 32], verified: VerifiedToken) {
        if self.recent.len() >= HALF {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(token, verified);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Caller;

    fn remembered() -> VerifiedToken {
        let identity = Identity {
            caller: Caller::from_bytes([0; 16]),
            name: hyper::header::HeaderValue::from_static("alice"),
            label: None,
            scopes: [].into(),
            ends_at_ms: Some(1),
        };
        VerifiedToken {
            identity: Arc::new(identity),
            issuer: 0,
            generation: 1,
        }
    }

    /// Keys must be evenly spread, as hashes are: the lowest byte is the one that differs.
    fn token(number: usize) -> [u8; 32] {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&number.to_le_bytes());
        token
    }

    #[test]
    fn it_is_bounded_and_keeps_what_comes_back() {
        let tokens = VerifiedTokens::default();
        tokens.put(token(0), remembered());
        for number in 1..10 * HALF {
            tokens.put(token(number), remembered());
            assert!(tokens.get(&token(0)).is_some(), "{number}");
        }
        let halves = tokens.halves.lock();
        assert!(halves.recent.len() + halves.older.len() <= 2 * HALF);
        drop(halves);
        assert!(tokens.get(&token(1)).is_none());
        assert!(tokens.get(&token(10 * HALF - 1)).is_some());
    }
}
