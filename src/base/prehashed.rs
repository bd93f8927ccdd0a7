//! Maps whose keys are evenly spread by themselves: keyed hashes, digests and random ids, of which no client can
//! choose many that collide. Such a key is its own hash, which costs nothing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by such keys. No other key belongs here: of a key that others choose they choose many that collide.
pub type PrehashedMap<K, V> = HashMap<K, V, BuildHasherDefault<FirstBytes>>;

/// Takes the first eight bytes of a key for its hash.
#[derive(Debug, Default, Clone, Copy)]
pub struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, key: &[u8]) {
        if let Some(first) = key.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length of the key, which is the same for all.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn a_key_is_its_own_hash() {
        let hash = |key: [u8; 16]| BuildHasherDefault::<FirstBytes>::default().hash_one(key);
        assert_eq!(hash([7; 16]), u64::from_le_bytes([7; 8]));
        assert_ne!(hash([7; 16]), hash([8; 16]));
    }

    #[test]
    fn keys_of_one_beginning_are_told_apart() {
        let mut map = PrehashedMap::default();
        for last in 0..100_u8 {
            let mut key = [0; 32];
            key[31] = last;
            map.insert(key, last);
        }
        assert_eq!(map.len(), 100);
        assert!((0..100_u8).all(|last| {
            let mut key = [0; 32];
            key[31] = last;
            map.get(&key) == Some(&last)
        }));
    }
}
