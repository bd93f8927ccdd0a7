//! A model of many calls: the delay until their clients receive the end, and the number of their polls, under the
//! usual rule and under the learned one. docs/polling.md has its figures.

use super::{HELD_PAUSE_MAX_MS, KNOWN_CALLS, PollTerms, interval_ms};
use crate::task::durations::Durations;
use crate::task::policy::poll_interval_at;

const CALLS_OF_A_LAW: u32 = 20_000;

const HOLD_MS: u64 = 8_000;

/// From the client to raincheck, or back.
const WAY_MS: u64 = 5;

/// The longest call.
const CALL_MAX_MS: u64 = 3_600_000;

/// Numbers that look random, the same ones from each seed (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// From above 0 to 1.
    fn part(&mut self) -> f64 {
        f64::from(u32::try_from(self.bits() >> 32).unwrap_or(0) / 2 + 1) / f64::from(1_u32 << 31)
    }

    /// Of the normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.part().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.part()).cos()
    }
}

type Law = fn(&mut Chance, f64) -> f64;

/// The distributions of the durations of calls, in milliseconds. The second argument: the part of the calls that were
/// made already, from 0 to 1.
const LAWS: [(&str, Law); 5] = [
    ("constant", |_, _| 12_000.0),
    ("log-normal", |chance, _| 8_000.0 * chance.normal().exp()),
    ("bimodal", |chance, _| {
        let usual = if chance.part() < 0.7 { 300.0 } else { 45_000.0 };
        usual * (0.05 * chance.normal()).exp()
    }),
    ("heavy tail", |chance, _| {
        1_000.0 * chance.part().powf(-1.0 / 1.2)
    }),
    ("drifting", |chance, made| {
        2_000.0 * 60.0_f64.powf(made) * (0.1 * chance.normal()).exp()
    }),
];

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    late_ms: u64,
    latest_ms: u64,
    polls: u64,
    most_polls: u64,
}

impl Sums {
    fn add(&mut self, (late_ms, polls): (u64, u64)) {
        self.late_ms += late_ms;
        self.latest_ms = self.latest_ms.max(late_ms);
        self.polls += polls;
        self.most_polls = self.most_polls.max(polls);
    }

    /// Mean lateness by mean polls.
    fn cost(&self) -> u128 {
        u128::from(self.late_ms) * u128::from(self.polls)
    }
}

/// Returns the delay until the client of one call receives the end, and the number of its polls.
fn follow(took_ms: u64, hold_ms: u64, interval_ms: impl Fn(u64) -> u64) -> (u64, u64) {
    let (mut told_ms, mut polls) = (0, 0);
    loop {
        let asked_ms = told_ms + WAY_MS + interval_ms(told_ms) + WAY_MS;
        polls += 1;
        if took_ms <= asked_ms + hold_ms {
            return (asked_ms.max(took_ms) + WAY_MS - took_ms, polls);
        }
        told_ms = asked_ms + hold_ms;
    }
}

#[test]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "durations are positive and small"
)]
fn clients_hear_of_the_end_sooner_and_ask_less() {
    let terms = PollTerms {
        base_ms: 2_000,
        hold_ms: HOLD_MS,
    };
    let mut chance = Chance(20_261_123);
    let (mut all_before, mut all_after) = (0, 0);
    for (name, law) in LAWS {
        let (mut before, mut after, mut unheld) =
            (Sums::default(), Sums::default(), Sums::default());
        let mut known = Durations::new(0);
        for call in 0..CALLS_OF_A_LAW {
            let made = f64::from(call) / f64::from(CALLS_OF_A_LAW);
            let took_ms = (law(&mut chance, made).max(1.0) as u64).min(CALL_MAX_MS);
            before.add(follow(took_ms, 0, |age| poll_interval_at(2_000, age)));
            let learned = |hold_ms| {
                let terms = PollTerms { hold_ms, ..terms };
                let known = &known;
                follow(took_ms, hold_ms, move |age| {
                    interval_ms(terms, Some(known), age)
                })
            };
            after.add(learned(HOLD_MS));
            unheld.add(learned(0));
            if u64::from(call) < KNOWN_CALLS {
                // The first calls count, but not as the worst: the usual rule holds for them.
                after.latest_ms = 0;
            }
            known.count(took_ms, 0);
        }
        let shown = |sums: &Sums| {
            let calls = f64::from(CALLS_OF_A_LAW);
            format!(
                "{:.3} s late (at most {:.1} s), {:.2} polls (at most {})",
                sums.late_ms as f64 / calls / 1000.0,
                sums.latest_ms as f64 / 1000.0,
                sums.polls as f64 / calls,
                sums.most_polls,
            )
        };
        println!(
            "{name}: usual {}; held {}; not held {}",
            shown(&before),
            shown(&after),
            shown(&unheld)
        );
        assert!(
            after.cost() * 4 <= before.cost(),
            "{name}: {before:?} {after:?}"
        );
        assert!(after.polls <= before.polls, "{name}: {before:?} {after:?}");
        assert!(
            after.latest_ms <= HELD_PAUSE_MAX_MS + 3 * WAY_MS,
            "{name}: {after:?}"
        );
        // Without holds nothing is lost, and what takes a steady time is gained.
        assert!(
            unheld.cost() * 100 <= before.cost() * 101,
            "{name}: {before:?} {unheld:?}"
        );
        all_before += before.cost();
        all_after += after.cost();
    }
    println!("over all laws: {:.4}", all_after as f64 / all_before as f64);
    assert!(all_after * 4 <= all_before);
}
