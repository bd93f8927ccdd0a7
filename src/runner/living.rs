//! Who lives, by the last heartbeat.

use crate::store::Dead;
use crate::task::id::Incarnation;

/// Who was found dead, by the last heartbeat.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub(super) now_ms: u64,
    /// Empty while the contact with the store is too young to judge anybody.
    pub(super) dead: Vec<Dead>,
    /// Whose lease runs; `None` while nobody can be judged.
    pub(super) living: Option<Vec<Incarnation>>,
}

impl View {
    pub(super) fn lost(&self, incarnation: &Incarnation) -> bool {
        self.dead
            .iter()
            .any(|dead| dead.incarnation == *incarnation)
    }
}
