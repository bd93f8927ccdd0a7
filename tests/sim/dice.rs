//! Chance that a seed decides.

use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Splitmix64: the same seed throws the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct Dice(Arc<Mutex<u64>>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        )))
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }
}
