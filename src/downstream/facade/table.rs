//! What runs here for legacy sessions: calls by the client's ids, and questions by ours.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, MutexGuard};

use super::super::legacy::pushes::SessionKey;
use crate::lock::Mutex;

/// Values by session and id, each for as long as its guard lives.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: Mutex<Values<T>>,
    of_a_session_max: usize,
    max: usize,
}

#[derive(Debug)]
struct Values<T> {
    /// Each with the number of its entry: a client may use an id again once it cancelled a call.
    sessions: HashMap<SessionKey, HashMap<Box<str>, (u64, T)>>,
    count: usize,
    entered: u64,
}

/// Dropped, its value is forgotten.
#[derive(Debug)]
pub(super) struct Entered<T> {
    table: Arc<Table<T>>,
    session: SessionKey,
    id: Box<str>,
    number: u64,
}

/// Why a value was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The session has one of that id already.
    SameId,
    /// The session has too many, or all sessions together.
    Full,
}

impl<T> Table<T> {
    pub(super) fn new(of_a_session_max: usize, max: usize) -> Self {
        let values = Values {
            sessions: HashMap::new(),
            count: 0,
            entered: 0,
        };
        Self {
            values: Mutex::new(values),
            of_a_session_max,
            max,
        }
    }

    fn values(&self) -> MutexGuard<'_, Values<T>> {
        self.values.lock()
    }

    pub(super) fn enter(
        self: &Arc<Self>,
        session: SessionKey,
        id: &str,
        value: T,
    ) -> Result<Entered<T>, Refused> {
        let mut values = self.values();
        let of_session = values.sessions.get(&session);
        if of_session.is_some_and(|of_session| of_session.contains_key(id)) {
            return Err(Refused::SameId);
        }
        let count = of_session.map_or(0, HashMap::len);
        if count >= self.of_a_session_max || values.count >= self.max {
            return Err(Refused::Full);
        }
        values.count += 1;
        values.entered += 1;
        let number = values.entered;
        let of_session = values.sessions.entry(session).or_default();
        of_session.insert(id.into(), (number, value));
        Ok(Entered {
            table: Arc::clone(self),
            session,
            id: id.into(),
            number,
        })
    }

    pub(super) fn take(&self, session: SessionKey, id: &str) -> Option<T> {
        self.values().take(session, id, |_| true)
    }

    /// Everything of that session.
    pub(super) fn take_all(&self, session: SessionKey) -> Vec<T> {
        let mut values = self.values();
        let taken = values.sessions.remove(&session).unwrap_or_default();
        values.count -= taken.len();
        taken.into_values().map(|(_, value)| value).collect()
    }
}

impl<T> Values<T> {
    fn take(
        &mut self,
        session: SessionKey,
        id: &str,
        is_it: impl FnOnce(u64) -> bool,
    ) -> Option<T> {
        let Entry::Occupied(mut of_session) = self.sessions.entry(session) else {
            return None;
        };
        let (number, _) = of_session.get().get(id)?;
        if !is_it(*number) {
            return None;
        }
        let (_, taken) = of_session.get_mut().remove(id)?;
        self.count -= 1;
        if of_session.get().is_empty() {
            of_session.remove();
        }
        Some(taken)
    }
}

impl<T> Drop for Entered<T> {
    fn drop(&mut self) {
        // Taken before, its id may be a newer one's by now.
        let is_it = |number| number == self.number;
        let taken = self.table.values().take(self.session, &self.id, is_it);
        drop(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Caller;

    #[test]
    fn what_runs_is_found_by_its_session_only() {
        let table = Arc::new(Table::new(2, 3));
        let of = |name| SessionKey::of(&Caller::from_bytes([1; 16]), name);
        let one = table.enter(of("a"), "1", "first").unwrap();
        assert_eq!(
            table.enter(of("a"), "1", "again").err(),
            Some(Refused::SameId)
        );
        let _two = table.enter(of("b"), "1", "other").unwrap();
        assert_eq!(table.take(of("c"), "1"), None);
        assert_eq!(table.take_all(of("a")), ["first"]);
        drop(one);
        assert_eq!(table.take(of("b"), "1"), Some("other"));
    }

    #[test]
    fn what_is_over_takes_nothing_that_came_after_it_under_its_id() {
        let table = Arc::new(Table::new(2, 3));
        let session = SessionKey::of(&Caller::from_bytes([1; 16]), "a");
        let older = table.enter(session, "1", "older").unwrap();
        assert_eq!(table.take(session, "1"), Some("older"));
        let newer = table.enter(session, "1", "newer").unwrap();
        drop(older);
        assert_eq!(
            table.enter(session, "1", "third").err(),
            Some(Refused::SameId)
        );
        drop(newer);
        assert_eq!(table.take(session, "1"), None);
    }

    #[test]
    fn it_is_bounded_for_one_session_and_for_all() {
        let table = Arc::new(Table::new(2, 3));
        let of = |name| SessionKey::of(&Caller::from_bytes([1; 16]), name);
        let one = table.enter(of("a"), "1", ()).unwrap();
        let _two = table.enter(of("a"), "2", ()).unwrap();
        assert_eq!(table.enter(of("a"), "3", ()).err(), Some(Refused::Full));
        let _three = table.enter(of("b"), "1", ()).unwrap();
        assert_eq!(table.enter(of("c"), "1", ()).err(), Some(Refused::Full));
        // Taken or dropped, once.
        table.take(of("a"), "1");
        drop(one);
        let _four = table.enter(of("c"), "1", ()).unwrap();
        assert_eq!(table.enter(of("c"), "2", ()).err(), Some(Refused::Full));
    }
}
