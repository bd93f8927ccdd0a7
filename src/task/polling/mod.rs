//! The poll interval that clients get for a task: so that the next poll waits when the call is likely to end. Pure.

use super::durations::Durations;
use super::policy::poll_interval_at;

#[cfg(test)]
mod model;

/// The calls of a tool that must have ended before the tool counts as known.
pub const KNOWN_CALLS: u64 = 8;

/// The longest pause between two polls that wait: a question comes to the client no later than this.
const HELD_PAUSE_MAX_MS: u64 = 5_000;

/// The longest pause between polls that do not wait.
const PAUSE_MAX_MS: u64 = 15_000;

/// The shortest pause, once a task is not quite new. A client that gives up after three failed polls and some attempts to
/// connect then outlives 15 s without raincheck.
const PAUSE_MIN_MS: u64 = 500;

/// A task that is younger than this may be polled sooner, if its tool is quick.
const NEW_MS: u64 = 2_000;

/// The shortest pause of all.
const LEAST_MS: u64 = 10;

/// The settings for polls in the rule of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollTerms {
    /// The interval at first, for a tool that is not known.
    pub base_ms: u64,
    /// The time that polls wait for a change. 0: they do not.
    pub hold_ms: u64,
}

/// Returns the poll interval for a task of this age, where `durations` has the durations of the calls of its tool.
pub fn interval_ms(terms: PollTerms, durations: Option<&Durations>, age_ms: u64) -> u64 {
    let usual = poll_interval_at(terms.base_ms, age_ms);
    let Some(known) = durations.filter(|known| known.calls() >= KNOWN_CALLS) else {
        return usual;
    };
    let remaining = |of_1000| known.remaining(age_ms, of_1000);
    // What is before this is free: hardly a call ends there.
    let Some(soonest) = remaining(50) else {
        return overdue_ms(terms, usual, age_ms);
    };
    let shortest = match remaining(500) {
        Some(usually) if age_ms < NEW_MS => (usually / 4).clamp(LEAST_MS, PAUSE_MIN_MS),
        _ => PAUSE_MIN_MS,
    };
    if terms.hold_ms > 0 {
        // The poll must be there before the call ends, and takes some time to come.
        let early = soonest - soonest / 8;
        return early.clamp(shortest, HELD_PAUSE_MAX_MS);
    }
    let likely = remaining(750).unwrap_or(usual);
    // Where the calls take nearly the same time, one poll after that time is enough.
    let is_steady = likely <= soonest + soonest / 4;
    let pause = if is_steady {
        likely
    } else {
        soonest.max(likely.min(usual))
    };
    pause.clamp(shortest, PAUSE_MAX_MS)
}

/// The interval for a call that has taken longer than calls of its tool do: it grows with the time.
fn overdue_ms(terms: PollTerms, usual: u64, age_ms: u64) -> u64 {
    if terms.hold_ms > 0 {
        (age_ms / 16).clamp(PAUSE_MIN_MS, HELD_PAUSE_MAX_MS)
    } else {
        usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: PollTerms = PollTerms {
        base_ms: 2_000,
        hold_ms: 8_000,
    };
    const UNHELD: PollTerms = PollTerms { hold_ms: 0, ..HELD };

    fn known(took_ms: &[u64]) -> Durations {
        let mut durations = Durations::new(0);
        for took in took_ms.iter().cycle().take(40) {
            durations.count(*took, 0);
        }
        durations
    }

    #[test]
    fn a_tool_that_is_not_known_is_polled_less_as_its_task_ages() {
        let mut few = Durations::new(0);
        few.count(100, 0);
        for terms in [HELD, UNHELD] {
            for durations in [None, Some(&few)] {
                let at = |age_ms| interval_ms(terms, durations, age_ms);
                assert_eq!((at(0), at(8_000), at(60_000)), (2_000, 8_000, 15_000));
            }
        }
    }

    #[test]
    fn the_next_poll_waits_when_the_call_is_likely_to_end() {
        let quick = known(&[200]);
        let first = interval_ms(HELD, Some(&quick), 0);
        assert!((100..200).contains(&first), "{first}");
        // A long call: the pauses stay short enough for a question.
        let long = known(&[60_000]);
        assert_eq!(interval_ms(HELD, Some(&long), 0), HELD_PAUSE_MAX_MS);
        let near = interval_ms(HELD, Some(&long), 57_000);
        assert_eq!(near, PAUSE_MIN_MS);
    }

    #[test]
    fn without_holds_the_next_poll_comes_after_the_likely_end() {
        let steady = known(&[10_000]);
        let first = interval_ms(UNHELD, Some(&steady), 0);
        assert!((9_000..=12_000).contains(&first), "{first}");
        let long = known(&[60_000]);
        assert_eq!(interval_ms(UNHELD, Some(&long), 0), PAUSE_MAX_MS);
    }

    #[test]
    fn a_call_that_takes_longer_than_any_is_polled_less_and_less() {
        let quick = known(&[200]);
        let at = |age_ms| interval_ms(HELD, Some(&quick), age_ms);
        assert_eq!((at(1_000), at(40_000), at(600_000)), (500, 2_500, 5_000));
        assert_eq!(interval_ms(UNHELD, Some(&quick), 60_000), 15_000);
    }

    #[test]
    fn an_interval_is_never_nothing_nor_endless() {
        for laws in [&[0_u64][..], &[1, 100_000_000], &[50, 60_000], &[u64::MAX]] {
            let durations = known(laws);
            for terms in [HELD, UNHELD] {
                for age_ms in [0, 1, 49, 50, 5_000, 100_000_000, u64::MAX / 2, u64::MAX] {
                    let pause = interval_ms(terms, Some(&durations), age_ms);
                    assert!(
                        (LEAST_MS..=PAUSE_MAX_MS).contains(&pause),
                        "{laws:?} {age_ms}"
                    );
                }
            }
        }
    }
}
