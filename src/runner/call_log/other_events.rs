//! The events of a call that are no messages, between two messages: clients ignore them, and raincheck passes them
//! on as they are, without ids. Pure.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The largest number of events that are kept between two messages, and of their bytes. The oldest are dropped, but
/// never the last one.
const EVENTS_MAX: usize = 16;
const BYTES_MAX: usize = 64 * 1024;

/// The events between two messages, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherEvents {
    /// The number of events that came before those that are kept.
    dropped: u64,
    kept: VecDeque<Box<str>>,
}

impl OtherEvents {
    pub fn add(&mut self, event: &str) {
        self.kept.push_back(event.into());
        while self.kept.len() > 1 && (self.kept.len() > EVENTS_MAX || self.bytes() > BYTES_MAX) {
            self.kept.pop_front();
            self.dropped += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// One more event may drop another.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= EVENTS_MAX || self.bytes() >= BYTES_MAX
    }

    /// Returns the number of events that came since the last message.
    pub fn count(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    /// The events behind the first so many.
    pub fn behind(&self, shown: u64) -> impl Iterator<Item = &str> {
        let known = usize::try_from(shown.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        self.kept.iter().skip(known).map(AsRef::as_ref)
    }

    pub(super) fn bytes(&self) -> usize {
        self.kept.iter().map(|event| event.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_none_is_shown_twice() {
        let mut others = OtherEvents::default();
        for number in 0..EVENTS_MAX {
            assert!(!others.is_full());
            others.add(&number.to_string());
        }
        assert!(others.is_full());
        others.add("last");
        assert_eq!(others.count(), EVENTS_MAX as u64 + 1);
        assert_eq!(others.behind(0).next(), Some("1"));
        assert_eq!(others.behind(3).next(), Some("3"));
        assert_eq!(others.behind(16).collect::<Vec<_>>(), ["last"]);
        assert_eq!(others.behind(17).next(), None);
        others.add(&"x".repeat(BYTES_MAX * 2));
        assert_eq!(others.behind(0).count(), 1, "the last is kept in any case");
    }
}
