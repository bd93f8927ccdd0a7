//! How long a session is remembered whose client is silent: a minute until its first use, and a day after it. The
//! sessions of a caller with many live shorter.

use crate::store::quota::{Allowance, OverQuota, Quotas};
use crate::task::id::Caller;

/// How long a session lives until its first use. Every client says at once that it is initialized.
pub(super) const FRESH_MS: u64 = 60 * 1000;

/// How long a session lives after a use.
pub(super) const LONG_MS: u64 = 24 * 60 * 60 * 1000;

/// How long a session lives after a use if its caller has many.
const SHORT_MS: u64 = 5 * 60 * 1000;

/// The sessions that this process keeps for each caller, by how long they live. A usual session takes half a KiB.
#[derive(Debug)]
pub(super) struct Lifetimes {
    fresh: Quotas,
    long: Quotas,
    short: Quotas,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let quotas = |entries, mib: u64| {
            let most = |factor| Allowance {
                entries: entries * factor,
                bytes: (mib << 20) * factor,
            };
            Quotas::new(most(1), most(4))
        };
        Self {
            fresh: quotas(1_000, 4),
            long: quotas(20_000, 8),
            short: quotas(20_000, 8),
        }
    }
}

impl Lifetimes {
    /// Whether the caller may begin one more session.
    pub(super) fn has_room(&self, caller: &Caller, now_ms: u64) -> bool {
        self.fresh.has_room(caller, now_ms)
    }

    /// Counts a new session. `Ok`: how long it lives.
    pub(super) fn begin(
        &self,
        caller: Caller,
        bytes: usize,
        now_ms: u64,
    ) -> Result<u64, OverQuota> {
        let entered = self.fresh.enter(caller, bytes, now_ms + FRESH_MS, now_ms);
        entered.map(|()| FRESH_MS)
    }

    /// Counts a session that is used for the first time, and says how long it lives from now on. `None`: the session
    /// ends when it would have ended without the use.
    pub(super) fn first_use(
        &self,
        caller: Caller,
        bytes: usize,
        begun_ms: u64,
        now_ms: u64,
    ) -> Option<u64> {
        let enter = |quotas: &Quotas, lasts_ms| {
            let entered = quotas.enter(caller, bytes, now_ms + lasts_ms, now_ms);
            entered.ok().map(|()| lasts_ms)
        };
        let lasts_ms = enter(&self.long, LONG_MS).or_else(|| enter(&self.short, SHORT_MS))?;
        let ends_ms = begun_ms.saturating_add(FRESH_MS);
        self.fresh.leave(&caller, bytes, ends_ms, now_ms);
        Some(lasts_ms)
    }

    /// Counts the new size of a session that is used. False: with it, the sessions of the caller would be larger
    /// than allowed.
    pub(super) fn resize(
        &self,
        caller: &Caller,
        sizes: (usize, usize),
        (since_ms, lasts_ms): (u64, u64),
        now_ms: u64,
    ) -> bool {
        let ends_ms = since_ms.saturating_add(lasts_ms);
        let quotas = self.of(lasts_ms);
        quotas.resize(caller, sizes, ends_ms, now_ms)
    }

    fn of(&self, lasts_ms: u64) -> &Quotas {
        match lasts_ms {
            LONG_MS => &self.long,
            SHORT_MS => &self.short,
            _ => &self.fresh,
        }
    }

    /// Forgets a session that its client ended. `used_ms`: the time of its first use.
    pub(super) fn end(
        &self,
        caller: &Caller,
        bytes: usize,
        used_ms: u64,
        lasts_ms: u64,
        now_ms: u64,
    ) {
        let quotas = self.of(lasts_ms);
        let ends_ms = used_ms.saturating_add(lasts_ms);
        quotas.leave(caller, bytes, ends_ms, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_a_caller_has_the_shorter_they_stay() {
        let (lifetimes, bytes) = (Lifetimes::default(), 16 * 1024);
        let (greedy, other) = (Caller::from_bytes([1; 16]), Caller::from_bytes([2; 16]));
        let mut lasts = [0; 3];
        for _ in 0..1024 {
            let begun = lifetimes.begin(greedy, bytes, 0).unwrap();
            let last = match lifetimes.first_use(greedy, bytes, 0, 0) {
                Some(LONG_MS) => 0,
                Some(_) => 1,
                None => {
                    assert_eq!(begun, FRESH_MS);
                    break;
                }
            };
            lasts[last] += 1;
        }
        assert_eq!(lasts, [512, 512, 0]);
        assert!(lifetimes.has_room(&greedy, 0));
        while lifetimes.begin(greedy, bytes, 0).is_ok() {}
        assert_eq!(lifetimes.begin(greedy, bytes, 0), Err(OverQuota));
        lifetimes.begin(other, bytes, 0).unwrap();
        assert_eq!(lifetimes.first_use(other, bytes, 0, 0), Some(LONG_MS));
        lifetimes.end(&greedy, bytes, 0, LONG_MS, 0);
        assert_eq!(lifetimes.first_use(greedy, bytes, 0, 0), Some(LONG_MS));
        // A minute later the fresh ones are gone.
        lifetimes.begin(greedy, bytes, FRESH_MS * 2).unwrap();
    }
}
