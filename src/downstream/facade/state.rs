//! What only this process knows of the sessions that are raincheck's own.

use tokio::sync::broadcast;

use super::stays::Stays;
use crate::downstream::inbound::session_key::SessionKey;

/// Changes of sessions that a stream may be behind.
const CHANGES_MAX: usize = 64;

/// What is known of these sessions in this process only.
#[derive(Debug)]
pub struct Facade {
    /// Sessions that were changed here.
    pub(super) changes: broadcast::Sender<SessionKey>,
    pub(super) stays: Stays,
}

impl Default for Facade {
    fn default() -> Self {
        Self {
            changes: broadcast::Sender::new(CHANGES_MAX),
            stays: Stays::default(),
        }
    }
}
