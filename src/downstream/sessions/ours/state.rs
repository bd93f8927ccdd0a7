//! What this process knows of the sessions of raincheck's own, and the store does not.

use tokio::sync::broadcast;

use super::lifetimes::Lifetimes;
use crate::downstream::inbound::session_key::SessionKey;

/// How many changes of sessions a stream may be behind.
const CHANGES_MAX: usize = 64;

/// What this process knows of the sessions of raincheck's own.
#[derive(Debug)]
pub struct OurSessions {
    /// Sessions that were changed here.
    pub(super) changes: broadcast::Sender<SessionKey>,
    pub(super) lifetimes: Lifetimes,
}

impl Default for OurSessions {
    fn default() -> Self {
        Self {
            changes: broadcast::Sender::new(CHANGES_MAX),
            lifetimes: Lifetimes::default(),
        }
    }
}
