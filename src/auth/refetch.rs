//! When the keys of an issuer are fetched, and for how long they count. Pure: the time is given.

use crate::base::backoff;

/// Tokens with unknown keys, which anybody can make, have the keys fetched at most so often in this time.
const FETCHES_MAX: usize = 2;
const PER_MS: u64 = 60_000;

/// Keys are fetched again after this time, so that one that its issuer took back does not count for long.
pub(super) const REFRESH_MS: u64 = 300_000;

/// The time for which the last fetched keys are used if the issuer cannot be reached.
const KEPT_MS: u64 = 24 * 3_600_000;

/// Pauses between attempts that fail.
const PAUSE_MS: u64 = 1_000;
const PAUSE_MAX_MS: u64 = 5_000;

/// The fetches that strangers may cause.
#[derive(Debug, Default)]
pub(super) struct RefetchBudget {
    begun_ms: [Option<u64>; FETCHES_MAX],
}

impl RefetchBudget {
    /// Returns `true` if one more fetch may begin now. If so, the fetch counts.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        // Requests at the same time may come in another order than they read the clock. A clock that was set back by
        // more does not stop fetches for ever.
        let is_over =
            |begun: &Option<u64>| begun.is_none_or(|begun| now_ms.abs_diff(begun) >= PER_MS);
        match self.begun_ms.iter_mut().find(|begun| is_over(begun)) {
            Some(free) => {
                *free = Some(now_ms);
                true
            }
            None => false,
        }
    }
}

/// Returns `true` if keys that were fetched at that time are still valid.
pub(super) fn counts(fetched_ms: u64, now_ms: u64) -> bool {
    now_ms < fetched_ms.saturating_add(KEPT_MS)
}

/// The pause after so many failures in a row; after none, until the keys are fetched anew.
pub(super) fn pause_ms(failures: u32) -> u64 {
    match failures {
        0 => REFRESH_MS,
        failures => backoff::after_ms(failures, PAUSE_MS, PAUSE_MAX_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_cause_two_fetches_a_minute() {
        for first in [0, 1_000_000] {
            let mut budget = RefetchBudget::default();
            let begun: Vec<u64> = (0..180_000)
                .step_by(100)
                .filter(|after| budget.take(first + after))
                .collect();
            assert_eq!(begun, [0, 100, 60_000, 60_100, 120_000, 120_100]);
        }
        let mut budget = RefetchBudget::default();
        assert!(budget.take(1_000_000) && budget.take(1_000_000) && !budget.take(1_000_001));
        assert!(
            !budget.take(999_999),
            "the clock was read before the others"
        );
        assert!(budget.take(5), "the clock was set back");
    }

    #[test]
    fn the_last_good_keys_count_for_a_day() {
        let day = 86_400_000;
        assert!(counts(5, 5) && counts(5, day + 4) && !counts(5, day + 5));
    }

    #[test]
    fn attempts_that_fail_have_growing_pauses() {
        assert_eq!(pause_ms(0), 300_000);
        let pauses: Vec<u64> = (1..=9).map(pause_ms).collect();
        let grown = [1, 2, 4, 5, 5, 5, 5, 5, 5].map(|seconds| seconds * 1_000);
        assert_eq!(pauses, grown);
        assert_eq!(pause_ms(u32::MAX), 5_000);
    }
}
