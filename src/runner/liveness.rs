//! Which replicas live, by the last heartbeat.

use crate::store::Dead;
use crate::task::id::Incarnation;

/// Which replicas live and which were found dead, by the last heartbeat.
#[derive(Debug, Clone, Default)]
pub(super) struct Liveness {
    pub(super) now_ms: u64,
    /// The incarnations that were found dead. Empty until the contact with the store has lasted long enough to
    /// decide.
    pub(super) dead: Vec<Dead>,
    /// The incarnations whose lease runs. `None` until the contact with the store has lasted long enough to decide.
    pub(super) living: Option<Vec<Incarnation>>,
}

impl Liveness {
    pub(super) fn lost(&self, incarnation: &Incarnation) -> bool {
        self.dead
            .iter()
            .any(|dead| dead.incarnation == *incarnation)
    }
}
