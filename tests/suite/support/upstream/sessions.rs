//! The sessions of clients: whether there are any, and how they end.

use std::sync::atomic::Ordering;

use hyper::Method;

use super::super::{PATIENCE, within};
use super::{Received, Upstream};

impl Upstream {
    /// From now on a modern server is one of both eras.
    pub(crate) fn take_sessions(&self) {
        self.shared.takes_sessions.store(true, Ordering::Relaxed);
    }

    /// From now on a legacy server has no sessions: of one request the next knows nothing.
    pub(crate) fn have_no_sessions(&self) {
        self.shared.sessionless.store(true, Ordering::Relaxed);
    }

    /// Forgets every legacy session, as a restart would.
    pub(crate) fn forget_sessions(&self) {
        self.shared.sessions.lock().unwrap().clear();
    }

    /// How many sessions were ended by their clients.
    pub(crate) fn sessions_ended(&self) -> usize {
        ended(&self.shared.received.borrow())
    }

    pub(crate) async fn until_sessions_ended(&self, count: usize) {
        let mut received = self.shared.received.subscribe();
        let event = received.wait_for(|all| ended(all) >= count);
        within(PATIENCE, "a session's end", event).await.unwrap();
    }
}

fn ended(all: &[Received]) -> usize {
    all.iter().filter(|one| one.verb == Method::DELETE).count()
}
