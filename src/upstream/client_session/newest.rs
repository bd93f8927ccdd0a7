//! The facts that this process remembers about clients' sessions at the server: about the newest ones.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The number of sessions that are remembered. An entry takes about 100 bytes.
const SESSIONS_MAX: usize = 10_000;

/// A fact about each of the newest sessions.
#[derive(Debug)]
pub struct NewestSessions<K, T> {
    facts: HashMap<K, T>,
    /// The sessions in the order in which they were remembered.
    sessions: VecDeque<K>,
}

impl<K, T> Default for NewestSessions<K, T> {
    fn default() -> Self {
        Self {
            facts: HashMap::new(),
            sessions: VecDeque::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, T: Clone> NewestSessions<K, T> {
    pub fn remember(&mut self, session: K, fact: T) {
        // Listed once for each session: with two entries, the older one would remove a fact that is still in use.
        if self.facts.insert(session.clone(), fact).is_none() {
            self.sessions.push_back(session);
        }
        while self.sessions.len() > SESSIONS_MAX {
            if let Some(oldest) = self.sessions.pop_front() {
                self.facts.remove(&oldest);
            }
        }
    }

    pub fn forget(&mut self, session: &K) -> Option<T> {
        let fact = self.facts.remove(session)?;
        // Linear in a bounded list, and only when a client ends its session.
        self.sessions.retain(|known| known != session);
        Some(fact)
    }

    pub fn find(&self, session: &K) -> Option<T> {
        self.facts.get(session).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sessions_are_remembered() {
        let mut newest = NewestSessions::default();
        for session in 0..=SESSIONS_MAX {
            newest.remember(session, 0);
            newest.remember(session, session);
        }
        assert_eq!(newest.find(&0), None);
        assert_eq!(newest.find(&1), Some(1));
        assert_eq!(newest.find(&SESSIONS_MAX), Some(SESSIONS_MAX));
    }
}
