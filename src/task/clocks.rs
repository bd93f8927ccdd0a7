//! The clocks of clients: the time after which each client gives a call up, as far as that is known. Pure.
//!
//! A client is known by the name under which it collects calls that it gave up. A clock is known when it has rung twice after
//! the same time, or once with a reason that says so.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The number of clients of which a clock is remembered.
const CLIENTS_MAX: usize = 256;

/// A clock counts as known for this long after it rang: a client may be given another limit. Then it rings once more.
pub const KNOWN_FOR: Duration = Duration::from_hours(1);

/// Two times that differ by no more are the same clock's.
const SAME_MS: u64 = 600;

/// The shortest clock that is worth an answer before it rings: of two seconds, which begin a little before the call arrives.
const SHORTEST_MS: u64 = 1_900;

/// The answer before a clock rings is given so much earlier: a twentieth of its time, within these bounds.
const AHEAD_MS: (u64, u64) = (500, 3_000);

/// A clock that rang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RungClock {
    /// The name under which the client collects calls.
    pub whose: [u8; 16],
    /// The time for which the client waited.
    pub waited: Duration,
    /// The client said that its clock rang.
    pub is_certain: bool,
}

/// The clocks that rang lately.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientClocks(HashMap<u128, ClientClock>);

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ClientClock {
    waited_ms: u64,
    is_known: bool,
    rang_ms: u64,
}

impl ClientClocks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of clients whose clock is known.
    pub fn known(&self) -> usize {
        self.0.values().filter(|clock| clock.is_known).count()
    }

    /// Notes that a clock rang at this time of day. Returns `true` if it is known from now on.
    pub fn rang(&mut self, clock: RungClock, now_ms: u64) -> bool {
        self.0.retain(|_, known| is_recent(known, now_ms));
        let whose = u128::from_be_bytes(clock.whose);
        let waited_ms = u64::try_from(clock.waited.as_millis()).unwrap_or(u64::MAX);
        let before = self.0.get(&whose).copied();
        let same = before.filter(|before| before.waited_ms.abs_diff(waited_ms) <= SAME_MS);
        if before.is_none() && self.0.len() >= CLIENTS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, known)| known.rang_ms);
            if let Some(oldest) = oldest.map(|(whose, _)| *whose) {
                self.0.remove(&oldest);
            }
        }
        let rung = ClientClock {
            // A clock never rings early, so the shorter time is nearer to it.
            waited_ms: same.map_or(waited_ms, |same| same.waited_ms.min(waited_ms)),
            is_known: clock.is_certain || same.is_some(),
            rang_ms: now_ms,
        };
        self.0.insert(whose, rung);
        rung.is_known && before.is_none_or(|before| !before.is_known)
    }

    /// Takes over what other replicas know.
    pub fn merge(&mut self, others: Self) {
        for (whose, other) in others.0.into_iter().take(CLIENTS_MAX) {
            let is_newer = |mine: &ClientClock| mine.rang_ms < other.rang_ms;
            let has_room = self.0.len() < CLIENTS_MAX;
            if self.0.get(&whose).map_or(has_room, is_newer) {
                self.0.insert(whose, other);
            }
        }
    }

    /// Returns the time after which a call of this client is answered, shortly before its clock rings. `None`: its clock is
    /// not known.
    pub fn answer_after(&self, whose: &[u8; 16], now_ms: u64) -> Option<Duration> {
        let known = self.0.get(&u128::from_be_bytes(*whose))?;
        let counts = known.is_known && is_recent(known, now_ms) && known.waited_ms >= SHORTEST_MS;
        let ahead_ms = (known.waited_ms / 20).clamp(AHEAD_MS.0, AHEAD_MS.1);
        counts.then(|| Duration::from_millis(known.waited_ms - ahead_ms))
    }
}

fn is_recent(clock: &ClientClock, now_ms: u64) -> bool {
    let known_for_ms = u64::try_from(KNOWN_FOR.as_millis()).unwrap_or(u64::MAX);
    now_ms < clock.rang_ms.saturating_add(known_for_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: [u8; 16] = [1; 16];

    fn clock(waited_ms: u64, is_certain: bool) -> RungClock {
        RungClock {
            whose: ANN,
            waited: Duration::from_millis(waited_ms),
            is_certain,
        }
    }

    fn after(clocks: &ClientClocks, now_ms: u64) -> Option<u64> {
        let after = clocks.answer_after(&ANN, now_ms)?;
        Some(u64::try_from(after.as_millis()).unwrap())
    }

    #[test]
    fn a_clock_is_known_once_it_rang_twice_after_the_same_time() {
        let mut clocks = ClientClocks::default();
        clocks.rang(clock(5_005, false), 0);
        assert_eq!(after(&clocks, 0), None);
        clocks.rang(clock(9_000, false), 1);
        assert_eq!(after(&clocks, 1), None);
        clocks.rang(clock(9_020, false), 2);
        assert_eq!(after(&clocks, 2), Some(8_500));
        assert_eq!(clocks.answer_after(&[2; 16], 2), None);
    }

    #[test]
    fn a_client_that_says_that_its_clock_rang_is_believed() {
        for (waited_ms, expected) in [
            (5_000, Some(4_500)),
            (60_003, Some(57_003)),
            (1_990, Some(1_490)),
            // There would be hardly any time left to wait in.
            (1_800, None),
        ] {
            let mut clocks = ClientClocks::default();
            clocks.rang(clock(waited_ms, true), 0);
            assert_eq!(after(&clocks, 0), expected, "{waited_ms}");
        }
    }

    #[test]
    fn a_clock_is_forgotten_after_a_while_and_learned_anew() {
        let known_for_ms = u64::try_from(KNOWN_FOR.as_millis()).unwrap();
        let mut clocks = ClientClocks::default();
        clocks.rang(clock(60_000, true), 0);
        assert!(after(&clocks, known_for_ms - 1).is_some());
        assert_eq!(after(&clocks, known_for_ms), None);
        clocks.rang(clock(300_000, false), known_for_ms);
        clocks.rang(clock(300_000, false), known_for_ms);
        assert_eq!(after(&clocks, known_for_ms), Some(297_000));
    }

    #[test]
    fn the_newer_clock_counts_of_two_replicas() {
        let (mut one, mut other) = (ClientClocks::default(), ClientClocks::default());
        one.rang(clock(5_000, true), 1);
        other.rang(clock(60_000, true), 2);
        let written = serde_json::to_vec(&other).unwrap();
        one.merge(serde_json::from_slice(&written).unwrap());
        assert_eq!(after(&one, 2), Some(57_000));
        let mut older = ClientClocks::default();
        older.rang(clock(5_000, true), 1);
        one.merge(older);
        assert_eq!(after(&one, 2), Some(57_000));
    }

    #[test]
    fn a_flood_of_clients_is_bounded() {
        let mut clocks = ClientClocks::default();
        for number in 0..10_000_u64 {
            let whose = u128::from(number).to_be_bytes();
            let clock = RungClock {
                whose,
                ..clock(5_000, true)
            };
            clocks.rang(clock, number);
            assert!(clocks.0.len() <= CLIENTS_MAX);
        }
    }
}
