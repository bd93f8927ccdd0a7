//! The held calls that this replica carries, and the last of what each said.

use std::collections::hash_map::Entry as Place;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::entry::Entry;
use super::kept::Kept;
use crate::downstream::legacy::pushes::SessionKey;
use crate::lock::Mutex;
use crate::store::kv::{ENTRIES_MAX, Name};

/// Calls held at once. Beyond, a call ends with its client's connection.
const HOLDS_MAX: usize = 1024;

/// What is kept in memory of one call beside the last thing that it said; the rest is in its log.
const TAIL_BYTES_MAX: usize = 256 * 1024;

/// What is kept in memory of all answers that the store could not take yet.
const ANSWERS_KIB_MAX: usize = 64 * 1024;

/// All of this process.
#[derive(Debug)]
pub struct Holds {
    room: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    /// The large answers that lie in the store.
    pub(super) kept: Kept,
    live: Mutex<HashMap<Name, Live>>,
}

impl Default for Holds {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(HOLDS_MAX)),
            answers: Arc::new(Semaphore::new(ANSWERS_KIB_MAX)),
            kept: Kept::default(),
            live: Mutex::default(),
        }
    }
}

#[derive(Debug)]
struct Live {
    session: SessionKey,
    request: Box<str>,
    tail: watch::Receiver<Tail>,
    cancelled: CancellationToken,
}

/// A call's place among those that are held. Dropped, the call is held no more.
#[derive(Debug)]
pub(super) struct Holding {
    holds: Arc<Holds>,
    name: Name,
    /// The client waits for the answer no more.
    pub(super) cancelled: CancellationToken,
    _room: OwnedSemaphorePermit,
}

impl Holds {
    fn live(&self) -> MutexGuard<'_, HashMap<Name, Live>> {
        self.live.lock()
    }

    /// Takes a place; `None`: there is none, or the call has one here.
    pub(super) fn begin(
        self: &Arc<Self>,
        name: Name,
        session: SessionKey,
        request: &RawValue,
        tail: watch::Receiver<Tail>,
    ) -> Option<Holding> {
        let room = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let cancelled = CancellationToken::new();
        let live = Live {
            session,
            request: request.get().into(),
            tail,
            cancelled: cancelled.clone(),
        };
        match self.live().entry(name) {
            Place::Occupied(_) => return None,
            Place::Vacant(place) => place.insert(live),
        };
        Some(Holding {
            holds: Arc::clone(self),
            name,
            cancelled,
            _room: room,
        })
    }

    /// The same, once what it says is shown.
    pub(super) fn find_begun(&self, name: Name) -> Option<watch::Receiver<Tail>> {
        self.find(name).filter(|tail| tail.borrow().is_begun)
    }

    /// What that call said last, if it is held here.
    pub(super) fn find(&self, name: Name) -> Option<watch::Receiver<Tail>> {
        self.live().get(&name).map(|live| live.tail.clone())
    }

    /// The client said that it waits for this request no more. `false`: no such call is held here.
    pub(super) fn cancelled(&self, session: SessionKey, request: &RawValue) -> bool {
        let live = self.live();
        let mut of_session = live.values().filter(|live| live.session == session);
        let found = of_session.find(|live| *live.request == *request.get());
        found.map(|live| live.cancelled.cancel()).is_some()
    }

    /// Room for an answer that waits for the store, while it is held.
    pub(super) fn keep(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
        Arc::clone(&self.answers).try_acquire_many_owned(kib).ok()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.holds.live().remove(&self.name);
    }
}

/// The last of what a call said, numbered from 1 without a gap.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Another replica knows of the call, as far as the store lets it.
    pub(super) is_begun: bool,
    entries: VecDeque<(u64, Entry)>,
    bytes: usize,
    /// The number of the last entry, which may be in the log only.
    last: u64,
}

/// What is behind an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// All of it, which may be nothing yet.
    Said(Vec<(u64, Entry)>),
    /// Only the log may have what comes before this one.
    From(u64),
}

impl Tail {
    /// Of a call that was carried elsewhere until then.
    pub(super) fn behind_entry(last: u64) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }

    /// All that there is from now on.
    pub(super) fn only(&mut self, number: u64, entry: Entry) {
        self.entries.clear();
        self.bytes = 0;
        self.push(number, entry);
    }

    pub(super) fn push(&mut self, number: u64, entry: Entry) {
        self.last = number;
        self.bytes += entry.len();
        self.entries.push_back((number, entry));
        while self.entries.len() > 1
            && (self.bytes > TAIL_BYTES_MAX || self.entries.len() as u64 > ENTRIES_MAX)
        {
            if let Some((_, oldest)) = self.entries.pop_front() {
                self.bytes -= oldest.len();
            }
        }
    }

    pub(super) fn behind(&self, after: u64) -> Behind {
        let first = self.entries.front().map(|(number, _)| *number);
        let first = first.unwrap_or_else(|| self.last.saturating_add(1));
        if first > after.saturating_add(1) {
            Behind::From(first)
        } else {
            Behind::Said(self.kept_behind(after))
        }
    }

    /// Whether it is kept where the server can be come back to.
    pub(super) fn is_resumable(&self) -> bool {
        let mut entries = self.entries.iter().rev();
        entries.any(|(_, entry)| entry.sealed().is_some())
    }

    /// What is kept of it.
    pub(super) fn kept_behind(&self, after: u64) -> Vec<(u64, Entry)> {
        let behind = self.entries.iter().filter(|(number, _)| *number > after);
        behind.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Meaning;
    use super::*;

    fn entry(bytes: usize) -> Entry {
        Entry::new(Meaning::Message, "x".repeat(bytes))
    }

    #[test]
    fn a_tail_is_bounded_and_keeps_the_last() {
        let mut tail = Tail::default();
        assert_eq!(tail.behind(0), Behind::Said(Vec::new()));
        for number in 1..=ENTRIES_MAX + 2 {
            tail.push(number, entry(1));
        }
        assert_eq!(tail.behind(0), Behind::From(3));
        assert_eq!(tail.behind(1), Behind::From(3));
        let kept = usize::try_from(ENTRIES_MAX).unwrap();
        assert_eq!(tail.kept_behind(0).len(), kept);
        let Behind::Said(rest) = tail.behind(2) else {
            panic!("everything behind 2 is there");
        };
        assert_eq!(rest.len(), kept);
        let last = ENTRIES_MAX + 3;
        tail.push(last, entry(TAIL_BYTES_MAX * 2));
        assert_eq!(tail.behind(0), Behind::From(last));
        assert_eq!(tail.behind(last), Behind::Said(Vec::new()));
        let taken_over = Tail::behind_entry(5);
        assert_eq!(taken_over.behind(3), Behind::From(6));
        assert_eq!(taken_over.behind(5), Behind::Said(Vec::new()));
    }

    #[test]
    fn a_place_is_free_again_and_a_cancel_finds_its_call() {
        let holds = Arc::new(Holds::default());
        let caller = crate::task::id::Caller::from_bytes([1; 16]);
        let session = SessionKey::of(&caller, "s");
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let name = Name::of(crate::store::kv::Kind::Events, &["x"]);
        let (_tail, receiver) = watch::channel(Tail::default());
        let held = holds.begin(name, session, &id("1"), receiver).unwrap();
        assert!(holds.find(name).is_some() && holds.find_begun(name).is_none());
        let (_tail, receiver) = watch::channel(Tail::default());
        assert!(holds.begin(name, session, &id("1"), receiver).is_none());
        assert!(!holds.cancelled(SessionKey::of(&caller, "other"), &id("1")));
        assert!(!holds.cancelled(session, &id("\"1\"")));
        assert!(!held.cancelled.is_cancelled());
        assert!(holds.cancelled(session, &id("1")));
        assert!(held.cancelled.is_cancelled());
        drop(held);
        assert!(holds.find(name).is_none());
        assert_eq!(holds.room.available_permits(), HOLDS_MAX);
    }
}
