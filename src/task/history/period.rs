//! The ends of a period, step by step.

use super::entry::EndedTask;
use super::sums::EndSums;

const MINUTE_MS: u64 = 60_000;

/// The lengths of steps, in minutes.
const STEPS_MIN: [u64; 12] = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];

/// The most steps of a period.
const STEPS_MAX: u64 = 72;

/// A period in equal steps, which begin at multiples of their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from_ms: u64,
    pub step_ms: u64,
    pub steps: usize,
}

/// The ends of a period, for each step and tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodEnds {
    pub period: Period,
    pub steps: Vec<EndSums>,
}

impl Period {
    /// The period that ends now and has this length, or a little more. The longest one has 72 days.
    pub fn until(now_ms: u64, length_ms: u64) -> Self {
        let fits = |minutes: &&u64| length_ms.div_ceil(**minutes * MINUTE_MS) < STEPS_MAX;
        let minutes = STEPS_MIN.iter().find(fits).copied();
        let step_ms = minutes.unwrap_or(1440) * MINUTE_MS;
        // The step that has begun counts, too.
        let steps = length_ms.div_ceil(step_ms).clamp(1, STEPS_MAX - 1) + 1;
        let end_ms = (now_ms / step_ms + 1) * step_ms;
        Self {
            from_ms: end_ms.saturating_sub(steps * step_ms),
            step_ms,
            steps: usize::try_from(steps).unwrap_or_default(),
        }
    }

    /// The step of a time. `None`: it lies outside.
    pub fn step_of(&self, at_ms: u64) -> Option<usize> {
        let step = at_ms.checked_sub(self.from_ms)? / self.step_ms;
        usize::try_from(step).ok().filter(|step| *step < self.steps)
    }

    /// The beginning of a step.
    pub fn begin_of(&self, step: usize) -> u64 {
        self.from_ms + self.step_ms * step as u64
    }

    /// Returns `true` if something of a time span lies in the period.
    pub fn meets(&self, from_ms: u64, to_ms: u64) -> bool {
        to_ms >= self.from_ms && from_ms < self.begin_of(self.steps)
    }
}

impl PeriodEnds {
    pub fn new(period: Period) -> Self {
        Self {
            period,
            steps: vec![EndSums::default(); period.steps],
        }
    }

    /// Counts an entry, if its end lies in the period.
    pub fn count(&mut self, entry: &EndedTask<'_>) {
        let step = self.period.step_of(entry.times.ended_ms);
        if let Some(sums) = step.and_then(|step| self.steps.get_mut(step)) {
            sums.count(&entry.group, &entry.times);
        }
    }

    /// Counts the sums of entries that all ended in this step.
    pub fn merge(&mut self, step: usize, sums: &EndSums) {
        if let Some(here) = self.steps.get_mut(step) {
            for (tool, ends) in sums.tools() {
                here.merge(tool, ends);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_some_whole_steps_and_the_one_that_has_begun() {
        const HOUR_MS: u64 = 3_600_000;
        let now_ms = 1_700_000_123_456;
        for (length_ms, step_ms, steps) in [
            (HOUR_MS, 60_000, 61),
            (24 * HOUR_MS, 30 * 60_000, 49),
            (7 * 24 * HOUR_MS, 3 * HOUR_MS, 57),
            (30 * 24 * HOUR_MS, 12 * HOUR_MS, 61),
            (365 * 24 * HOUR_MS, 24 * HOUR_MS, 72),
            (1, 60_000, 2),
        ] {
            let period = Period::until(now_ms, length_ms);
            assert_eq!((period.step_ms, period.steps), (step_ms, steps));
            assert_eq!(period.from_ms % step_ms, 0);
            assert_eq!(period.step_of(now_ms), Some(steps - 1));
            assert_eq!(period.step_of(period.from_ms), Some(0));
            assert_eq!(period.step_of(period.from_ms - 1), None);
            assert_eq!(period.step_of(period.begin_of(steps)), None);
            assert!(period.meets(0, period.from_ms) && !period.meets(0, period.from_ms - 1));
        }
    }
}
