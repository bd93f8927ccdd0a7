//! The sessions that clients ended.

use hyper::Method;

use super::super::{PATIENCE, within};
use super::{Received, Upstream};

impl Upstream {
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
