//! Randomness that a seed repeats.

use std::time::Duration;

/// `SplitMix64`: small, and good enough to choose moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed {
    first: u64,
    state: u64,
}

impl Seed {
    pub(crate) fn of(seed: u64) -> Self {
        Self {
            first: seed,
            state: seed,
        }
    }

    pub(crate) fn random() -> Self {
        // Short enough to be typed again.
        let random = uuid::Uuid::new_v4().as_u128() % 1_000_000_000;
        Self::of(u64::try_from(random).unwrap_or_default())
    }

    /// What repeats the run.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least `from`, less than `to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }
}
