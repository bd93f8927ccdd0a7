//! The facts that this process remembers about sessions at the server: about the newest ones.

use std::collections::{HashMap, VecDeque};

use crate::downstream::inbound::session_key::SessionKey;

/// The number of sessions that are remembered. An entry takes about 100 bytes.
const SESSIONS_MAX: usize = 10_000;

/// A fact about each of the newest sessions.
#[derive(Debug)]
pub(super) struct NewestSessions<T> {
    facts: HashMap<SessionKey, T>,
    /// The sessions in the order in which they were remembered.
    sessions: VecDeque<SessionKey>,
}

impl<T> Default for NewestSessions<T> {
    fn default() -> Self {
        Self {
            facts: HashMap::new(),
            sessions: VecDeque::new(),
        }
    }
}

impl<T: Clone> NewestSessions<T> {
    pub(super) fn remember(&mut self, session: SessionKey, fact: T) {
        // Listed once for each session: with two entries, the older one would remove a fact that is still in use.
        if self.facts.insert(session, fact).is_none() {
            self.sessions.push_back(session);
        }
        while self.sessions.len() > SESSIONS_MAX {
            if let Some(oldest) = self.sessions.pop_front() {
                self.facts.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&mut self, session: SessionKey) -> Option<T> {
        let fact = self.facts.remove(&session)?;
        // Linear in a bounded list, and only when a client ends its session.
        self.sessions.retain(|known| *known != session);
        Some(fact)
    }

    pub(super) fn find(&self, session: SessionKey) -> Option<T> {
        self.facts.get(&session).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Caller;

    #[test]
    fn the_newest_sessions_are_remembered() {
        let mut newest = NewestSessions::default();
        let caller = Caller::from_bytes([1; 16]);
        let session = |number: usize| SessionKey::of(&caller, &number.to_string());
        for number in 0..=SESSIONS_MAX {
            newest.remember(session(number), 0);
            newest.remember(session(number), number);
        }
        assert_eq!(newest.find(session(0)), None);
        assert_eq!(newest.find(session(1)), Some(1));
        assert_eq!(newest.find(session(SESSIONS_MAX)), Some(SESSIONS_MAX));
    }
}
