//! A place in the events of a caller, which clients keep as a cursor. Pure.
//!
//! No log contains the order in which the commits of several replicas became visible: a commit shows up some time
//! after the time that it carries. So a place is a time that lies a little back, and the events behind that time that
//! were sent already. The place is right on every replica and after a restart, because nothing but the records
//! decides what lies behind it.

use std::collections::BTreeSet;

use super::EventMark;
use crate::mcp::base64;

/// The most events that a place names. Beyond it the oldest of them moves the place on.
pub const TOLD_MAX: usize = 1024;

/// The first byte of a cursor.
const FORM: u8 = 1;

const MARK_BYTES: usize = 16;

/// The boundary between the events that were sent and those that were not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPosition {
    /// Every event until this one was sent, in the order of events. No such event needs to exist.
    until: EventMark,
    /// The later events that were sent.
    told: BTreeSet<EventMark>,
}

impl EventPosition {
    /// The place behind all events until this time.
    pub fn at(until_ms: u64) -> Self {
        Self {
            until: last_at(until_ms),
            told: BTreeSet::new(),
        }
    }

    /// Returns the time until which every event was sent.
    pub fn until_ms(&self) -> u64 {
        self.until.at_ms
    }

    /// Returns the last millisecond of which every event was sent.
    pub fn whole_ms(&self) -> u64 {
        if self.until == last_at(self.until.at_ms) {
            self.until.at_ms
        } else {
            self.until.at_ms.saturating_sub(1)
        }
    }

    pub fn is_news(&self, mark: EventMark) -> bool {
        mark > self.until && !self.told.contains(&mark)
    }

    /// Notes that the event was sent. Of the events that a client receives at once, the oldest is noted first,
    /// because a full place moves on to the oldest event that it names.
    pub fn note(&mut self, mark: EventMark) {
        if mark <= self.until {
            return;
        }
        self.told.insert(mark);
        while self.told.len() > TOLD_MAX {
            if let Some(oldest) = self.told.pop_first() {
                self.until = oldest;
            }
        }
    }

    /// Moves the place on to this time, or to just before `untold`: all events before both were sent.
    pub fn advance(&mut self, until_ms: u64, untold: Option<EventMark>) {
        let until = match untold {
            None => last_at(until_ms),
            Some(untold) => last_at(until_ms).min(before(untold)),
        };
        if until > self.until {
            self.until = until;
            // The new place covers the earlier marks, and the set is bounded.
            self.told.retain(|mark| *mark > until);
        }
    }

    /// Returns `true` if records may be gone by now whose events were not sent. `kept_ms`: the time that the
    /// record of a task is there after its end. `until_ms`: the time until which every commit has shown up.
    pub fn has_gap(&self, kept_ms: u64, until_ms: u64) -> bool {
        until_ms.saturating_sub(self.until.at_ms) > kept_ms
    }

    pub fn encode(&self) -> String {
        let mut bytes = Vec::with_capacity(1 + (1 + self.told.len()) * MARK_BYTES);
        bytes.push(FORM);
        for mark in std::iter::once(&self.until).chain(&self.told) {
            bytes.extend(mark.at_ms.to_be_bytes());
            bytes.extend(mark.key.to_be_bytes());
        }
        let mut out = String::new();
        base64::encode(&bytes, &mut out);
        out
    }

    /// `None`: raincheck made no such cursor, or not by now.
    pub fn decode(cursor: &str, now_ms: u64) -> Option<Self> {
        // A client sends the cursor. A longer one than a full place has is not decoded.
        if cursor.len() > (TOLD_MAX + 2) * MARK_BYTES * 4 / 3 {
            return None;
        }
        let bytes = base64::decode(cursor)?;
        let bytes = bytes.strip_prefix(&[FORM])?;
        let (marks, rest) = bytes.as_chunks::<MARK_BYTES>();
        let (until, told) = marks.split_first()?;
        let until = mark_of(until)?;
        // A place in the future would hide every event until then.
        if until.at_ms > now_ms || !rest.is_empty() {
            return None;
        }
        let mut position = Self {
            until,
            told: BTreeSet::new(),
        };
        for mark in told {
            // Noted one by one, because a client may send marks that lie before the place, and `note` drops those.
            position.note(mark_of(mark)?);
        }
        Some(position)
    }
}

/// Behind all events of this time.
fn last_at(at_ms: u64) -> EventMark {
    EventMark {
        at_ms,
        key: u64::MAX,
    }
}

/// Before this event, and behind all that come before it.
fn before(mark: EventMark) -> EventMark {
    match mark.key.checked_sub(1) {
        Some(key) => EventMark { key, ..mark },
        None => last_at(mark.at_ms.saturating_sub(1)),
    }
}

fn mark_of(bytes: &[u8; MARK_BYTES]) -> Option<EventMark> {
    let (at_ms, key) = bytes.split_first_chunk::<8>()?;
    Some(EventMark {
        at_ms: u64::from_be_bytes(*at_ms),
        key: u64::from_be_bytes(*key.first_chunk::<8>()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;
    const LATE: u64 = 10_000;

    fn mark(at_ms: u64, key: u64) -> EventMark {
        EventMark { at_ms, key }
    }

    /// Tells what is news of these events as a stream does: the oldest first.
    fn tell(place: &mut EventPosition, there: &[EventMark], heard: &mut Vec<EventMark>) {
        let mut news: Vec<_> = there.iter().filter(|one| place.is_news(**one)).collect();
        news.sort_unstable();
        for mark in news {
            place.note(*mark);
            heard.push(*mark);
        }
    }

    #[test]
    fn an_event_that_shows_up_late_is_told_and_none_twice() {
        let mut place = EventPosition::at(NOW - LATE);
        let (known, late) = (mark(NOW - 5, 1), mark(NOW - 9_000, 2));
        place.note(known);
        let mut place = EventPosition::decode(&place.encode(), NOW).unwrap();
        assert!(!place.is_news(known) && place.is_news(late));
        place.note(late);
        place.advance(NOW + 5_000 - LATE, None);
        assert!(!place.is_news(late) && !place.is_news(known));
        assert!(!place.is_news(mark(NOW - 6_000, 3)), "its time is over");
        place.advance(NOW + 60_000 - LATE, None);
        assert_eq!(place.told.len(), 0, "{place:?}");
        assert!(!place.is_news(known));
    }

    #[test]
    fn what_was_not_told_keeps_the_place_back() {
        let mut place = EventPosition::at(NOW - LATE);
        place.note(mark(NOW + 1, 1));
        place.advance(NOW + 90_000, Some(mark(NOW + 1, 2)));
        assert!(!place.is_news(mark(NOW + 1, 1)) && place.is_news(mark(NOW + 1, 2)));
        assert!(!place.is_news(mark(NOW, 7)));
        place.advance(NOW - LATE, None);
        assert!(place.is_news(mark(NOW + 1, 2)) && !place.is_news(mark(NOW, 7)));
        assert_eq!(
            place.whole_ms(),
            NOW,
            "one of the next millisecond is untold"
        );
        assert_eq!(EventPosition::at(NOW).whole_ms(), NOW);
        let first = mark(NOW + 9, 0);
        place.advance(NOW + 90_000, Some(first));
        assert!(place.is_news(first) && !place.is_news(mark(NOW + 8, 9)));
    }

    #[test]
    fn ends_in_any_order_are_each_told_once() {
        // Six hundred ends, three in the same millisecond, which show up in another order: some of them only at a later look.
        let all: Vec<_> = (0..600_u64).map(|n| mark(NOW + n / 3, n)).collect();
        let mut place = EventPosition::at(NOW - LATE);
        let mut heard = Vec::new();
        let shuffled: Vec<_> = (0..600).map(|n| all[n * 7 % 600]).collect();
        for seen in [100, 350, 351, 600] {
            tell(&mut place, &shuffled[..seen], &mut heard);
            place.advance(NOW + 200 - LATE, None);
            place = EventPosition::decode(&place.encode(), NOW + 200).unwrap();
        }
        heard.sort_unstable();
        assert_eq!(heard, all);
    }

    #[test]
    fn an_end_that_a_look_just_missed_is_told_by_the_next() {
        // The task was read first and ended then, before all the others of the look.
        let missed = mark(NOW, 1);
        let others: Vec<_> = (1..1_000).map(|n| mark(NOW + n, n)).collect();
        let (mut place, mut heard) = (EventPosition::at(NOW - LATE), Vec::new());
        tell(&mut place, &others, &mut heard);
        assert_eq!(heard, others);
        let mut place = EventPosition::decode(&place.encode(), NOW + 1_000).unwrap();
        assert!(place.is_news(missed));
        tell(&mut place, &[missed], &mut heard);
        assert!(!place.is_news(missed) && !others.iter().any(|other| place.is_news(*other)));
    }

    #[test]
    fn more_ends_than_a_place_names_move_it_on_and_none_is_lost() {
        // All in one millisecond, so that their time alone does not tell them apart.
        let all: Vec<_> = (0..5_000).map(|n| mark(NOW, n)).collect();
        let mut place = EventPosition::at(NOW - LATE);
        for (n, one) in all.iter().enumerate() {
            assert!(place.is_news(*one));
            place.note(*one);
            assert!(!place.is_news(*one) && !place.is_news(all[0]));
            assert!(all.get(n + 1).is_none_or(|next| place.is_news(*next)));
            assert!(place.told.len() <= TOLD_MAX);
        }
        let mut heard = Vec::new();
        tell(&mut place, &all, &mut heard);
        assert_eq!(heard, [], "none is told again");
        assert!(EventPosition::decode(&place.encode(), NOW) == Some(place));
    }

    #[test]
    fn a_gap_is_known_by_the_age_of_the_place() {
        let place = EventPosition::at(NOW);
        assert!(!place.has_gap(60_000, NOW + 60_000));
        assert!(place.has_gap(60_000, NOW + 60_001));
    }

    #[test]
    fn a_cursor_of_others_is_refused() {
        let good = EventPosition::at(NOW - LATE).encode();
        assert!(EventPosition::decode(&good, NOW).is_some());
        assert!(
            EventPosition::decode(&good, NOW - 20_000).is_none(),
            "not made yet"
        );
        for foreign in [
            "",
            "AAAA",
            "AQ==",
            "null",
            &good[1..],
            &good.repeat(2),
            &"A".repeat(1 << 20),
        ] {
            assert_eq!(EventPosition::decode(foreign, NOW), None, "{foreign:.20}");
        }
    }
}
