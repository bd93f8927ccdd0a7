//! Which replicas live, by the last heartbeat.

use crate::store::Dead;
use crate::store::record::TELLS_ALL;
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

    /// Returns `true` if a living replica has a version that does not notify other replicas of everything that they
    /// wait for.
    pub(super) fn has_earlier(&self) -> bool {
        let is_earlier = |replica: &Incarnation| replica.reads() < Some(TELLS_ALL);
        self.living
            .as_ref()
            .is_some_and(|living| living.iter().any(is_earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_does_not_tell_all_is_an_earlier_one() {
        let of = |living: &[Incarnation]| Liveness {
            living: Some(living.to_vec()),
            ..Liveness::default()
        };
        let (now, before) = (
            Incarnation::new("a").reading(TELLS_ALL),
            Incarnation::new("b"),
        );
        assert!(!Liveness::default().has_earlier());
        assert!(!of(std::slice::from_ref(&now)).has_earlier());
        assert!(of(&[now.clone(), before.clone()]).has_earlier());
        assert!(of(&[now, before.reading(TELLS_ALL - 1)]).has_earlier());
    }
}
