//! The newest events of one call, in memory: every reader here gets them without the store. What the newest reader
//! has not read is kept, and the server is not read while that is too much.

use std::collections::VecDeque;
use std::sync::Arc;

use super::entry::LogEntry;
use super::other_events::OtherEvents;
use super::pace::ReaderPace;
use crate::store::kv::ENTRIES_MAX;

/// Bytes that are kept of one call beside its last event; the log in the store has the rest.
const BYTES_MAX: usize = 256 * 1024;

/// The newest events of a call, numbered from 1 without a gap.
#[derive(Debug, Default)]
pub struct RecentEvents {
    /// `true` once the store has been notified of the call, or is away: events may be sent to readers.
    pub is_begun: bool,
    entries: VecDeque<(u64, LogEntry)>,
    bytes: usize,
    /// The number of the last entry. The log may be the only place that has it.
    last: u64,
    /// The events behind the last entry that are no messages.
    others: OtherEvents,
    pace: Arc<ReaderPace>,
}

/// The events behind one that a reader has.
#[derive(Debug, PartialEq, Eq)]
pub enum Backlog {
    /// All of them; there may be none yet.
    All(Vec<(u64, LogEntry)>),
    /// Memory begins with this entry: only the log may have the entries before it.
    Since(u64),
}

impl RecentEvents {
    /// For a call that another replica carried until this entry.
    pub fn begin_behind(&mut self, last: u64) {
        self.last = last;
    }

    /// The place of the newest reader here.
    pub fn pace(&self) -> &Arc<ReaderPace> {
        &self.pace
    }

    /// Replaces everything by this entry.
    pub fn only(&mut self, number: u64, entry: LogEntry) {
        self.entries.clear();
        self.bytes = 0;
        self.push(number, entry);
    }

    pub fn push(&mut self, number: u64, entry: LogEntry) {
        self.last = number;
        self.bytes += entry.len();
        self.entries.push_back((number, entry));
        // The entry has them.
        self.others = OtherEvents::default();
        // Without a reader the bounds alone decide, because a client that comes back reads the log.
        let read = self.pace.place().map_or(number, |place| place.after);
        while self.entries.len() > 1
            && (self.bytes > BYTES_MAX || self.entries.len() as u64 > ENTRIES_MAX)
            && self
                .entries
                .front()
                .is_some_and(|(oldest, _)| *oldest <= read)
        {
            if let Some((_, oldest)) = self.entries.pop_front() {
                self.bytes -= oldest.len();
            }
        }
    }

    /// Adds an event that is no message.
    pub fn add_other(&mut self, event: &str) {
        self.others.add(event);
    }

    /// The events behind the last entry that are no messages.
    pub fn others(&self) -> &OtherEvents {
        &self.others
    }

    /// Returns `true` if one more event drops none that the newest reader has not read.
    pub(super) fn has_room(&self) -> bool {
        let Some(place) = self.pace.place() else {
            return true;
        };
        let entries = self.entries.iter().rev();
        let unread = entries.take_while(|(number, _)| *number > place.after);
        let (mut count, mut bytes) = (0, 0);
        for (_, entry) in unread {
            count += 1;
            bytes += entry.len();
        }
        let has_read_others = count == 0 && place.others >= self.others.count();
        let has_room_for_others = has_read_others || !self.others.is_full();
        count < ENTRIES_MAX && bytes < BYTES_MAX && has_room_for_others
    }

    pub fn behind(&self, after: u64) -> Backlog {
        let first = self.entries.front().map(|(number, _)| *number);
        // Right after a takeover memory is empty, and only the log has the entries up to `last`.
        let first = first.unwrap_or_else(|| self.last.saturating_add(1));
        if first > after.saturating_add(1) {
            Backlog::Since(first)
        } else {
            Backlog::All(self.kept_behind(after))
        }
    }

    /// Returns `true` if any of these entries has a server's event id from which the call can be resumed.
    pub fn is_resumable(&self) -> bool {
        let mut entries = self.entries.iter().rev();
        entries.any(|(_, entry)| entry.sealed().is_some())
    }

    /// The entries in memory behind that one.
    pub fn kept_behind(&self, after: u64) -> Vec<(u64, LogEntry)> {
        let behind = self.entries.iter().filter(|(number, _)| *number > after);
        behind.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::EntryKind;
    use super::super::pace::ReadPlace;
    use super::*;

    fn entry(bytes: usize) -> LogEntry {
        LogEntry::new(EntryKind::Message, "x".repeat(bytes))
    }

    #[test]
    fn memory_is_bounded_and_keeps_the_last() {
        let mut recent = RecentEvents::default();
        assert_eq!(recent.behind(0), Backlog::All(Vec::new()));
        for number in 1..=ENTRIES_MAX + 2 {
            recent.push(number, entry(1));
        }
        assert_eq!(recent.behind(0), Backlog::Since(3));
        assert_eq!(recent.behind(1), Backlog::Since(3));
        let kept = usize::try_from(ENTRIES_MAX).unwrap();
        assert_eq!(recent.kept_behind(0).len(), kept);
        let Backlog::All(rest) = recent.behind(2) else {
            panic!("everything behind 2 is there");
        };
        assert_eq!(rest.len(), kept);
        let last = ENTRIES_MAX + 3;
        recent.push(last, entry(BYTES_MAX * 2));
        assert_eq!(recent.behind(0), Backlog::Since(last));
        assert_eq!(recent.behind(last), Backlog::All(Vec::new()));
        let mut taken_over = RecentEvents::default();
        taken_over.begin_behind(5);
        assert_eq!(taken_over.behind(3), Backlog::Since(6));
        assert_eq!(taken_over.behind(5), Backlog::All(Vec::new()));
    }

    #[test]
    fn nothing_is_dropped_that_the_newest_reader_has_not_read() {
        let mut recent = RecentEvents::default();
        let older = recent.pace().begin(ReadPlace::default());
        let reader = recent.pace().begin(ReadPlace::default());
        for number in 1..=ENTRIES_MAX {
            assert!(recent.has_room());
            recent.push(number, entry(1));
        }
        assert!(!recent.has_room());
        let behind = |after, others| ReadPlace { after, others };
        older.has_read(behind(ENTRIES_MAX, 0));
        assert!(!recent.has_room(), "it does not read any more");
        // The answer does not wait.
        recent.push(ENTRIES_MAX + 1, entry(BYTES_MAX));
        assert!(matches!(recent.behind(0), Backlog::All(_)));
        reader.has_read(behind(ENTRIES_MAX, 0));
        assert!(!recent.has_room());
        reader.has_read(behind(ENTRIES_MAX + 1, 0));
        while recent.has_room() {
            recent.add_other("x");
        }
        reader.has_read(behind(ENTRIES_MAX + 1, recent.others().count()));
        assert!(recent.has_room());
        drop(reader);
        recent.push(ENTRIES_MAX + 2, entry(BYTES_MAX));
        recent.push(ENTRIES_MAX + 3, entry(BYTES_MAX));
        assert!(recent.has_room() && recent.kept_behind(0).len() == 1);
    }
}
