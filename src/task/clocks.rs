//! The clocks of clients: the time after which each client gives up calls of each tool, as far as that is known. Pure.
//!
//! A clock is known when it has rung twice after the same time: a program may set another one for each call.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use crate::mcp::hex;

/// The number of clocks that are remembered.
const CLOCKS_MAX: usize = 256;

/// A longer name of a tool is cut.
const TOOL_BYTES_MAX: usize = 128;

/// A clock counts for this long after it rang: a client may be given another limit. Then it rings once more.
pub const KNOWN_FOR: Duration = Duration::from_hours(1);

/// Two times that differ by no more are the same clock's.
const SAME_MS: u64 = 600;

/// The clocks for which a call is answered before they ring. The shortest is one of two seconds, which begins a little before
/// the call arrives. A longer one than a day is a value that no replica wrote.
const ANSWERED_MS: RangeInclusive<u64> = 1_900..=86_400_000;

/// The answer before a clock rings is given so much earlier: a twentieth of its time, within these bounds.
const AHEAD_MS: (u64, u64) = (500, 3_000);

/// The clock that a client has for the calls of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClockName(u128);

impl ClockName {
    /// `whose`: the name under which the client collects calls. `program`: a hash of its description of itself, because
    /// several programs may have one credential.
    pub fn of(whose: &[u8; 16], program: u64, tool: &str) -> Self {
        let digest = Digest::of(&[&hex::encode(whose), &program.to_string(), tool]);
        Self(u128::from_be_bytes(*digest.as_bytes()))
    }
}

/// A clock that rang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RungClock {
    pub name: ClockName,
    /// The time for which the client waited.
    pub waited: Duration,
}

/// The clocks that rang lately.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientClocks(HashMap<ClockName, ClientClock>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ClientClock {
    /// For operators.
    #[serde(default)]
    tool: Box<str>,
    /// The time after which it rang twice, and when it rang last.
    known: Option<Ring>,
    /// The last time, if it was another one.
    other: Option<Ring>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ring {
    waited_ms: u64,
    at_ms: u64,
}

impl ClientClocks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the tools whose calls a client is known to give up, and the shortest time after which one does.
    pub fn known(&self, now_ms: u64) -> BTreeMap<&str, Duration> {
        let mut known = BTreeMap::new();
        for clock in self.0.values() {
            if let Some(ring) = clock.known.filter(|ring| ring.is_recent(now_ms)) {
                let waited = Duration::from_millis(ring.waited_ms);
                let shortest = known.entry(&*clock.tool).or_insert(waited);
                *shortest = waited.min(*shortest);
            }
        }
        known
    }

    /// Notes that a clock rang at this time of day for a call of this tool. Returns `true` if it is known from now on.
    pub fn rang(&mut self, clock: RungClock, tool: &str, now_ms: u64) -> bool {
        let ring = Ring {
            waited_ms: u64::try_from(clock.waited.as_millis()).unwrap_or(u64::MAX),
            at_ms: now_ms,
        };
        self.make_room(clock.name, now_ms);
        let before = self.0.get(&clock.name);
        let (known, other) = before.map_or((None, None), |before| (before.known, before.other));
        let recent = |ring: Option<Ring>| ring.filter(|ring| ring.is_recent(now_ms));
        let (known, other) = (recent(known), recent(other));
        let same = |before: Option<Ring>| before.and_then(|before| before.again(ring));
        let after = match (same(known), same(other)) {
            (Some(known), _) => (Some(known), other),
            (None, Some(known)) => (Some(known), None),
            (None, None) => (known, Some(ring)),
        };
        let (is_new, (known, other)) = (known.is_none() && after.0.is_some(), after);
        let end = tool.floor_char_boundary(TOOL_BYTES_MAX);
        let tool = tool.get(..end).unwrap_or_default().into();
        self.0
            .insert(clock.name, ClientClock { tool, known, other });
        is_new
    }

    /// Takes over what other replicas know.
    pub fn merge(&mut self, others: Self, now_ms: u64) {
        for (name, other) in others.0.into_iter().take(CLOCKS_MAX) {
            if other.is_recent(now_ms) && other.tool.len() <= TOOL_BYTES_MAX {
                self.make_room(name, now_ms);
                let mine = self.0.entry(name).or_insert_with(|| other.clone());
                mine.known = newer(mine.known, other.known);
                mine.other = newer(mine.other, other.other);
            }
        }
    }

    /// Returns the time after which a call is answered, shortly before its clock rings. `None`: the clock is not known.
    pub fn answer_after(&self, name: ClockName, now_ms: u64) -> Option<Duration> {
        let known = self.0.get(&name)?.known?;
        let counts = known.is_recent(now_ms) && ANSWERED_MS.contains(&known.waited_ms);
        let ahead_ms = (known.waited_ms / 20).clamp(AHEAD_MS.0, AHEAD_MS.1);
        counts.then(|| Duration::from_millis(known.waited_ms.saturating_sub(ahead_ms)))
    }

    /// Makes room for a clock of this name.
    fn make_room(&mut self, name: ClockName, now_ms: u64) {
        if self.0.len() < CLOCKS_MAX || self.0.contains_key(&name) {
            return;
        }
        self.0.retain(|_, clock| clock.is_recent(now_ms));
        let oldest = self.0.iter().min_by_key(|(_, clock)| clock.last_ms());
        if let Some(oldest) = oldest.map(|(name, _)| *name)
            && self.0.len() >= CLOCKS_MAX
        {
            self.0.remove(&oldest);
        }
    }
}

impl ClientClock {
    fn last_ms(&self) -> u64 {
        let rings = [self.known, self.other].into_iter().flatten();
        rings.map(|ring| ring.at_ms).max().unwrap_or_default()
    }

    fn is_recent(&self, now_ms: u64) -> bool {
        let mut rings = [self.known, self.other].into_iter().flatten();
        rings.any(|ring| ring.is_recent(now_ms))
    }
}

impl Ring {
    fn is_recent(self, now_ms: u64) -> bool {
        let known_for_ms = u64::try_from(KNOWN_FOR.as_millis()).unwrap_or(u64::MAX);
        // A time far ahead is none that a replica wrote, and would count for ever.
        now_ms.abs_diff(self.at_ms) < known_for_ms
    }

    /// The same clock, after it rang again. `None`: it is another time.
    fn again(self, ring: Self) -> Option<Self> {
        let is_same = self.waited_ms.abs_diff(ring.waited_ms) <= SAME_MS;
        is_same.then_some(Self {
            // A clock never rings early, so the shorter time is nearer to it.
            waited_ms: self.waited_ms.min(ring.waited_ms),
            at_ms: ring.at_ms,
        })
    }
}

fn newer(one: Option<Ring>, other: Option<Ring>) -> Option<Ring> {
    one.into_iter().chain(other).max_by_key(|ring| ring.at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(tool: &str) -> ClockName {
        ClockName::of(&[1; 16], 7, tool)
    }

    fn clock(waited_ms: u64) -> RungClock {
        RungClock {
            name: name("build"),
            waited: Duration::from_millis(waited_ms),
        }
    }

    /// Clocks that rang after these times, each a millisecond after the one before.
    fn rung(waited_ms: &[u64]) -> ClientClocks {
        let mut clocks = ClientClocks::default();
        for (waited_ms, now_ms) in waited_ms.iter().zip(0..) {
            clocks.rang(clock(*waited_ms), "build", now_ms);
        }
        clocks
    }

    fn after(clocks: &ClientClocks, now_ms: u64) -> Option<u64> {
        let after = clocks.answer_after(name("build"), now_ms)?;
        Some(u64::try_from(after.as_millis()).unwrap())
    }

    #[test]
    fn a_clock_is_known_once_it_rang_twice_after_the_same_time() {
        for (waited_ms, expected) in [
            (&[5_000][..], None),
            (&[5_000, 9_000], None),
            (&[5_010, 5_000], Some(4_500)),
            (&[60_003, 60_500], Some(57_003)),
            (&[300_000, 300_000], Some(297_000)),
            // One cancel at another time does not make it forget.
            (&[60_000, 60_000, 10_000], Some(57_000)),
            (&[60_000, 60_000, 10_000, 60_000], Some(57_000)),
            (&[60_000, 60_000, 10_000, 10_000], Some(9_500)),
            (&[1_990, 1_990], Some(1_490)),
            // There would be hardly any time left to wait in.
            (&[1_800, 1_800], None),
        ] {
            assert_eq!(after(&rung(waited_ms), 9), expected, "{waited_ms:?}");
        }
    }

    #[test]
    fn each_client_program_and_tool_has_a_clock_of_its_own() {
        let clocks = rung(&[5_000, 5_000]);
        let known = BTreeMap::from([("build", Duration::from_secs(5))]);
        assert_eq!(clocks.known(0), known);
        for other in [
            name("other"),
            ClockName::of(&[1; 16], 8, "build"),
            ClockName::of(&[2; 16], 7, "build"),
        ] {
            assert_eq!(clocks.answer_after(other, 0), None);
        }
    }

    #[test]
    fn a_clock_is_forgotten_after_a_while_and_learned_anew() {
        let known_for_ms = u64::try_from(KNOWN_FOR.as_millis()).unwrap();
        let mut clocks = rung(&[60_000, 60_000]);
        assert!(after(&clocks, known_for_ms).is_some());
        let later = known_for_ms + 1;
        assert!(after(&clocks, later).is_none() && clocks.known(later).is_empty());
        clocks.rang(clock(60_000), "build", later);
        assert_eq!(after(&clocks, later), None);
        clocks.rang(clock(60_000), "build", later);
        assert_eq!(after(&clocks, later), Some(57_000));
    }

    #[test]
    fn the_newer_clock_counts_of_two_replicas() {
        let mut one = rung(&[5_000, 5_000]);
        let other = rung(&[5_000, 60_000, 60_000]);
        let written = serde_json::to_vec(&other).unwrap();
        one.merge(serde_json::from_slice(&written).unwrap(), 3);
        assert_eq!(after(&one, 3), Some(57_000));
        one.merge(rung(&[5_000, 5_000]), 3);
        assert_eq!(after(&one, 3), Some(57_000));
    }

    #[test]
    fn values_that_no_replica_wrote_count_for_nothing() {
        assert_eq!(after(&rung(&[u64::MAX, u64::MAX]), 9), None);
        let mut forged = rung(&[5_000]);
        forged.rang(clock(5_000), "build", u64::MAX);
        let mut mine = ClientClocks::default();
        mine.merge(forged, 9);
        assert!(after(&mine, 9).is_none() && mine.known(9).is_empty());
    }

    #[test]
    fn a_flood_of_clients_is_bounded() {
        let mut clocks = ClientClocks::default();
        for number in 0..10_000_u64 {
            let name = ClockName::of(&[1; 16], number, "build");
            let clock = RungClock {
                name,
                ..clock(5_000)
            };
            clocks.rang(clock, &"\u{e9}".repeat(1_000), number);
            assert!(clocks.0.len() <= CLOCKS_MAX);
        }
        let mut names = clocks.0.values().map(|clock| clock.tool.len());
        assert!(names.all(|length| length == TOOL_BYTES_MAX));
        let mut others = rung(&[5_000, 5_000]);
        others.merge(clocks, 10_000);
        assert!(others.0.len() <= CLOCKS_MAX);
    }
}
