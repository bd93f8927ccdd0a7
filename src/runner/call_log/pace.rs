//! The place up to which the newest reader of a call on this replica has read: its server is read no faster.
//!
//! Only the newest reader counts. A client that comes back has no use for its older stream, whose connection may seem
//! open for long.

use std::sync::{Arc, MutexGuard};

use tokio::sync::Notify;

use crate::base::lock::Mutex;

/// The place up to which a reader has read: an entry, and the number of the other events behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadPlace {
    pub after: u64,
    pub others: u64,
}

/// The place of the newest reader.
#[derive(Debug, Default)]
pub struct ReaderPace {
    state: Mutex<PaceState>,
    /// Notified when the newest reader has read on, or is gone.
    moved: Notify,
}

#[derive(Debug, Default)]
struct PaceState {
    readers: u64,
    /// The number of the newest reader, and its place. `None`: it is gone.
    newest: Option<(u64, ReadPlace)>,
}

impl ReaderPace {
    fn state(&self) -> MutexGuard<'_, PaceState> {
        self.state.lock()
    }

    /// A reader that begins at this place, and is the newest now.
    pub fn begin(self: &Arc<Self>, place: ReadPlace) -> PacedReader {
        let mut state = self.state();
        state.readers += 1;
        let number = state.readers;
        state.newest = Some((number, place));
        drop(state);
        // The writer may be waiting until the reader before this one reads on, and that reader no longer counts.
        self.moved.notify_one();
        PacedReader {
            pace: Arc::clone(self),
            number,
        }
    }

    /// `None`: there is no reader to wait for.
    pub(super) fn place(&self) -> Option<ReadPlace> {
        self.state().newest.map(|(_, place)| place)
    }

    /// Resolves when the place may be another, also if that came before the call. For one waiter. Cancel safe.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }
}

/// One reader. Dropped, it is gone.
#[derive(Debug)]
pub struct PacedReader {
    pace: Arc<ReaderPace>,
    number: u64,
}

impl PacedReader {
    /// The connection has taken everything up to this place.
    pub fn has_read(&self, place: ReadPlace) {
        self.set(Some((self.number, place)));
    }

    fn set(&self, to: Option<(u64, ReadPlace)>) {
        let mut state = self.pace.state();
        // Only the newest reader sets the pace, so an older one that is still there changes nothing.
        if state
            .newest
            .is_some_and(|(number, _)| number == self.number)
            && state.newest != to
        {
            state.newest = to;
            drop(state);
            self.pace.moved.notify_one();
        }
    }
}

impl Drop for PacedReader {
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(after: u64) -> ReadPlace {
        ReadPlace { after, others: 0 }
    }

    #[test]
    fn only_the_newest_reader_is_waited_for() {
        let pace = Arc::new(ReaderPace::default());
        assert_eq!(pace.place(), None);
        let older = pace.begin(place(1));
        let newest = pace.begin(place(2));
        older.has_read(place(9));
        assert_eq!(pace.place(), Some(place(2)));
        newest.has_read(place(3));
        drop(older);
        assert_eq!(pace.place(), Some(place(3)));
        drop(newest);
        assert_eq!(pace.place(), None);
    }
}
