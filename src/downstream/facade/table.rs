//! What runs here for legacy sessions: calls by the client's ids, and questions by ours.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::legacy::pushes::SessionKey;

/// Values by session and id, each for as long as its guard lives. As many as there are calls, which
/// the runner bounds, and their questions.
#[derive(Debug)]
pub(super) struct Table<T>(Mutex<HashMap<(SessionKey, Box<str>), T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Dropped, its value is forgotten.
#[derive(Debug)]
pub(super) struct Entered<T> {
    table: Arc<Table<T>>,
    key: (SessionKey, Box<str>),
}

impl<T> Table<T> {
    fn values(&self) -> MutexGuard<'_, HashMap<(SessionKey, Box<str>), T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the session has one of that id already.
    pub(super) fn enter(
        self: &Arc<Self>,
        session: SessionKey,
        id: &str,
        value: T,
    ) -> Option<Entered<T>> {
        let key = (session, Box::from(id));
        match self.values().entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(value),
        };
        let table = Arc::clone(self);
        Some(Entered { table, key })
    }

    pub(super) fn take(&self, session: SessionKey, id: &str) -> Option<T> {
        self.values().remove(&(session, Box::from(id)))
    }

    /// Everything of that session.
    pub(super) fn take_all(&self, session: SessionKey) -> Vec<T> {
        let mut values = self.values();
        let taken = values.extract_if(|(of, _), _| *of == session);
        taken.map(|(_, value)| value).collect()
    }
}

impl<T> Drop for Entered<T> {
    fn drop(&mut self) {
        // Taken before, its id may be another's by now only where a client uses ids twice.
        self.table.values().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Caller;

    #[test]
    fn what_runs_is_found_by_its_session_only() {
        let table = Arc::new(Table::default());
        let of = |name| SessionKey::of(&Caller::from_bytes([1; 16]), name);
        let one = table.enter(of("a"), "1", "first").unwrap();
        assert!(table.enter(of("a"), "1", "again").is_none());
        let _two = table.enter(of("b"), "1", "other").unwrap();
        assert_eq!(table.take(of("c"), "1"), None);
        assert_eq!(table.take_all(of("a")), ["first"]);
        drop(one);
        assert_eq!(table.take(of("b"), "1"), Some("other"));
    }
}
