//! Whether the program can be run, and when it may be started again. Pure: the time is passed in.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::backoff;

/// A process that ends within this time, before it answered a single call, has died quickly.
const QUICK: Duration = Duration::from_secs(10);

/// After this many quick deaths in a row, the program counts as one that cannot be run.
const DEATHS_MAX: u32 = 5;

const PAUSE_MS: u64 = 100;
const PAUSE_MAX_MS: u64 = 30_000;

/// The health of a program, by the ends of its processes.
#[derive(Debug, Default)]
pub(in crate::upstream) struct LineHealth {
    quick_deaths: u32,
    not_before: Option<Instant>,
}

impl LineHealth {
    /// Returns the time to wait before the next start.
    pub(in crate::upstream) fn pause(&self, now: Instant) -> Duration {
        self.not_before
            .map(|at| at.saturating_duration_since(now))
            .unwrap_or_default()
    }

    /// A process ended by itself.
    pub(in crate::upstream) fn died(&mut self, lived: Duration, has_answered: bool, now: Instant) {
        if has_answered || lived >= QUICK {
            self.quick_deaths = 0;
        } else {
            self.quick_deaths = self.quick_deaths.saturating_add(1);
        }
        let pause_ms = backoff::after_ms(self.quick_deaths, PAUSE_MS, PAUSE_MAX_MS);
        self.not_before = Some(now + Duration::from_millis(pause_ms));
    }

    /// Takes the last death back, which was no fault of the program.
    pub(in crate::upstream) fn forgive(&mut self) {
        self.quick_deaths = self.quick_deaths.saturating_sub(1);
        // The probe goes on with another process, which must not wait for a pause.
        self.not_before = None;
    }

    /// The program has answered a call, so it can be run, whatever happened before.
    pub(in crate::upstream) fn answered(&mut self) {
        self.quick_deaths = 0;
    }

    pub(in crate::upstream) fn cannot_run(&self) -> bool {
        self.quick_deaths >= DEATHS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(PAUSE_MS);
    const PAUSE_MAX: Duration = Duration::from_millis(PAUSE_MAX_MS);

    const SOON: Duration = Duration::from_millis(50);

    #[test]
    fn quick_deaths_are_answered_with_longer_pauses_and_a_verdict() {
        let (now, mut health) = (Instant::now(), LineHealth::default());
        assert_eq!(health.pause(now), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert_eq!(health.cannot_run(), pauses.len() >= 5);
            health.died(SOON, false, now);
            pauses.push(health.pause(now).as_millis());
        }
        assert_eq!(pauses[..5], [100, 200, 400, 800, 1600]);
        assert_eq!(pauses[11], 30_000);
        assert_eq!(health.pause(now + PAUSE_MAX), Duration::ZERO);
        health.answered();
        assert!(!health.cannot_run());
    }

    #[test]
    fn a_death_that_is_forgiven_does_not_count() {
        let (now, mut health) = (Instant::now(), LineHealth::default());
        for deaths in 1..=5 {
            assert!(!health.cannot_run());
            health.died(SOON, false, now);
            health.forgive();
            assert_eq!(health.pause(now), Duration::ZERO);
            health.died(SOON, false, now);
            assert_eq!(health.pause(now), PAUSE * (1 << (deaths - 1)));
        }
        assert!(health.cannot_run());
    }

    #[test]
    fn a_program_that_worked_is_no_wreck() {
        let (now, mut health) = (Instant::now(), LineHealth::default());
        for _ in 0..20 {
            health.died(SOON, true, now);
            assert_eq!(health.pause(now), PAUSE);
            health.died(QUICK, false, now);
        }
        assert!(!health.cannot_run());
    }
}
