//! Growing pauses between attempts: each is twice the one before. Pure, but for the spread.

use std::time::Duration;

/// The pauses before the attempts to do one thing.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The same pauses, the first of which is `next`.
    #[must_use]
    pub const fn beginning_with(self, next: Duration) -> Self {
        Self { next, ..self }
    }

    /// Returns the pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        // `beginning_with` may set a pause of zero, which would stay zero when it is doubled.
        self.next = (pause * 2).clamp(self.first, self.longest);
        pause
    }

    /// Returns the pause before the next attempt, up to a quarter longer: replicas that lost the same server do not
    /// come back to it together.
    pub fn spread_pause(&mut self) -> Duration {
        let mut random = [0; 1];
        // Without randomness they come back together.
        let _ = getrandom::fill(&mut random);
        spread(self.pause(), random[0])
    }

    /// The pauses begin anew.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// All pauses from here on are the longest.
    pub fn lengthen(&mut self) {
        self.next = self.longest;
    }
}

/// Returns the pause after so many failures in a row, in milliseconds. After none, it is the first.
pub fn after_ms(failures: u32, first_ms: u64, longest_ms: u64) -> u64 {
    // An unbounded shift would overflow after 64 failures.
    let doublings = failures.saturating_sub(1).min(16);
    first_ms.saturating_mul(1 << doublings).min(longest_ms)
}

/// Returns a pause of up to a quarter more.
pub fn spread(pause: Duration, random: u8) -> Duration {
    pause + pause / 4 * u32::from(random) / u32::from(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(10);

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let mut six = || [(); 6].map(|()| backoff.pause().as_secs());
        assert_eq!(six(), [1, 2, 4, 8, 10, 10]);
        backoff.reset();
        assert_eq!((backoff.pause(), backoff.pause()), (FIRST, FIRST * 2));
        backoff.lengthen();
        assert_eq!((backoff.pause(), backoff.pause()), (LONGEST, LONGEST));
        let short = Duration::from_millis(10);
        let mut backoff = Backoff::new(FIRST, LONGEST).beginning_with(short);
        assert_eq!((backoff.pause(), backoff.pause()), (short, FIRST));
        let mut backoff = backoff.beginning_with(LONGEST * 2);
        assert_eq!(backoff.pause(), LONGEST);
    }

    #[test]
    fn the_pause_after_failures_is_that_of_as_many_attempts() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        for failures in 1..7 {
            let pause = Duration::from_millis(after_ms(failures, 1_000, 10_000));
            assert_eq!(pause, backoff.pause());
        }
        assert_eq!(after_ms(0, 1_000, 10_000), 1_000);
        assert_eq!(after_ms(u32::MAX, 1_000, 10_000), 10_000);
    }

    #[test]
    fn a_spread_pause_is_up_to_a_quarter_longer() {
        assert_eq!(spread(FIRST, 0), FIRST);
        assert_eq!(spread(FIRST, u8::MAX), FIRST + FIRST / 4);
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let pause = backoff.spread_pause();
        assert!((FIRST..=FIRST + FIRST / 4).contains(&pause));
        assert!(backoff.pause() == FIRST * 2, "the spread does not grow");
    }
}
