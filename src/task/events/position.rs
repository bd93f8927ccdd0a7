//! A place in the events of a caller, which clients keep as a cursor. Pure.
//!
//! No log says in which order the commits of several replicas became visible: a commit shows up some time after the time
//! that it carries. So a place is a time that lies a little back, and the events behind that time that were told already.
//! The place is right on every replica and after a restart, because nothing but the records decides what lies behind it.

use std::collections::BTreeSet;

use super::EventMark;
use crate::mcp::base64;

/// How long after its time a commit shows up at the latest: the patience with a store, and what clocks differ by.
const LATE_MS: u64 = 10_000;

/// The most events that a place names. Beyond it the oldest of them moves the time on.
const TOLD_MAX: usize = 256;

/// The first byte of a cursor.
const FORM: u8 = 1;

const MARK_BYTES: usize = 16;

/// What was told, and what was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Everything until this time was told.
    until_ms: u64,
    /// What was told of what came later.
    told: BTreeSet<EventMark>,
}

impl Position {
    /// The place where a client begins. The caller notes the events that are there already.
    pub fn now(now_ms: u64) -> Self {
        Self {
            until_ms: now_ms.saturating_sub(LATE_MS),
            told: BTreeSet::new(),
        }
    }

    pub fn is_news(&self, mark: EventMark) -> bool {
        mark.at_ms > self.until_ms && !self.told.contains(&mark)
    }

    /// Notes that the event was told. Events are noted in their order, so that what moves the time on was told.
    pub fn note(&mut self, mark: EventMark) {
        if mark.at_ms <= self.until_ms {
            return;
        }
        self.told.insert(mark);
        while self.told.len() > TOLD_MAX {
            if let Some(oldest) = self.told.pop_first() {
                self.pass(oldest.at_ms);
            }
        }
    }

    /// Moves the time on, as all events were told that are visible at `now_ms`, or all before `untold`.
    pub fn advance(&mut self, now_ms: u64, untold: Option<EventMark>) {
        let until_ms = now_ms.saturating_sub(LATE_MS);
        let before = untold.map_or(u64::MAX, |mark| mark.at_ms.saturating_sub(1));
        self.pass(until_ms.min(before));
    }

    fn pass(&mut self, until_ms: u64) {
        self.until_ms = self.until_ms.max(until_ms);
        let until_ms = self.until_ms;
        self.told.retain(|mark| mark.at_ms > until_ms);
    }

    /// Whether records may be gone by now whose events were not told. `kept_ms`: how long the record of a task is there
    /// after its end.
    pub fn has_gap(&self, kept_ms: u64, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.until_ms) > kept_ms.saturating_add(LATE_MS)
    }

    pub fn encode(&self) -> String {
        let mut bytes = Vec::with_capacity(9 + self.told.len() * MARK_BYTES);
        bytes.push(FORM);
        bytes.extend(self.until_ms.to_be_bytes());
        for mark in &self.told {
            bytes.extend(mark.at_ms.to_be_bytes());
            bytes.extend(mark.key.to_be_bytes());
        }
        let mut out = String::new();
        base64::encode(&bytes, &mut out);
        out
    }

    /// `None`: raincheck made no such cursor, or not by now.
    pub fn decode(cursor: &str, now_ms: u64) -> Option<Self> {
        if cursor.len() > (TOLD_MAX + 2) * MARK_BYTES * 4 / 3 {
            return None;
        }
        let bytes = base64::decode(cursor)?;
        let bytes = bytes.strip_prefix(&[FORM])?;
        let (until_ms, rest) = bytes.split_first_chunk::<8>()?;
        let until_ms = u64::from_be_bytes(*until_ms);
        let (marks, rest) = rest.as_chunks::<MARK_BYTES>();
        if until_ms > now_ms || !rest.is_empty() {
            return None;
        }
        let mut position = Self {
            until_ms,
            told: BTreeSet::new(),
        };
        for mark in marks {
            let (at_ms, key) = mark.split_first_chunk::<8>()?;
            let key = key.first_chunk::<8>()?;
            position.note(EventMark {
                at_ms: u64::from_be_bytes(*at_ms),
                key: u64::from_be_bytes(*key),
            });
        }
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn mark(at_ms: u64, key: u64) -> EventMark {
        EventMark { at_ms, key }
    }

    #[test]
    fn an_event_that_shows_up_late_is_told_and_none_twice() {
        let mut place = Position::now(NOW);
        let (known, late) = (mark(NOW - 5, 1), mark(NOW - 9_000, 2));
        place.note(known);
        let mut place = Position::decode(&place.encode(), NOW).unwrap();
        assert!(!place.is_news(known) && place.is_news(late));
        place.note(late);
        place.advance(NOW + 5_000, None);
        assert!(!place.is_news(late) && !place.is_news(known));
        assert!(!place.is_news(mark(NOW - 6_000, 3)), "its time is over");
        place.advance(NOW + 60_000, None);
        assert_eq!(place.told.len(), 0, "{place:?}");
        assert!(!place.is_news(known));
    }

    #[test]
    fn what_was_not_told_keeps_the_place_back() {
        let mut place = Position::now(NOW);
        place.note(mark(NOW + 1, 1));
        place.advance(NOW + 90_000, Some(mark(NOW + 2, 2)));
        assert!(!place.is_news(mark(NOW + 1, 1)) && place.is_news(mark(NOW + 2, 2)));
    }

    #[test]
    fn a_burst_moves_the_time_on_and_loses_none_behind_it() {
        let mut place = Position::now(NOW);
        let all: Vec<_> = (0..1_000).map(|n| mark(NOW + n, n)).collect();
        for (n, one) in all.iter().enumerate() {
            assert!(place.is_news(*one));
            place.note(*one);
            assert!(all[..=n].iter().all(|told| !place.is_news(*told)));
            assert!(all[n + 1..].iter().all(|untold| place.is_news(*untold)));
            assert!(place.told.len() <= TOLD_MAX);
        }
        assert!(Position::decode(&place.encode(), NOW + 1_000) == Some(place));
    }

    #[test]
    fn a_gap_is_known_by_the_age_of_the_place() {
        let place = Position::now(NOW);
        assert!(!place.has_gap(60_000, NOW + 60_000));
        assert!(place.has_gap(60_000, NOW + 60_001));
    }

    #[test]
    fn a_cursor_of_others_is_refused() {
        let good = Position::now(NOW).encode();
        assert!(Position::decode(&good, NOW).is_some());
        assert!(
            Position::decode(&good, NOW - 20_000).is_none(),
            "not made yet"
        );
        for foreign in [
            "",
            "AAAA",
            "null",
            &good[1..],
            &good.repeat(2),
            &"A".repeat(1 << 20),
        ] {
            assert_eq!(Position::decode(foreign, NOW), None, "{foreign:.20}");
        }
    }
}
