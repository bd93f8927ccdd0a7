//! Where the server of a held call lets its stream be come back to, as the store has it: sealed.

use std::fmt;

use crate::downstream::proxy::Shared;
use crate::store::seal::{SealedField, Sealer};
use crate::task::id::{Caller, TaskId};

/// Under which name such a point is sealed.
const FIELD: &str = "held";

/// What seals the points of one call. Cheap to clone.
#[derive(Clone)]
pub(super) struct Seal {
    sealer: Option<Sealer>,
    caller: Caller,
    hold: TaskId,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    pub(super) fn of(front: &Shared, caller: Caller, hold: TaskId) -> Self {
        let sealer = front.runner.sealer().cloned();
        Self {
            sealer,
            caller,
            hold,
        }
    }

    #[cfg(test)]
    pub(super) fn of_none(caller: Caller, hold: TaskId) -> Self {
        Self {
            sealer: None,
            caller,
            hold,
        }
    }

    fn place(&self) -> SealedField<'_> {
        SealedField {
            task: self.hold,
            caller: &self.caller,
            field: FIELD,
        }
    }

    /// `None`: without a key nobody else comes back there.
    pub(super) fn close(&self, event_id: &str) -> Option<Box<str>> {
        self.sealer.as_ref()?.seal(self.place(), event_id).ok()
    }

    pub(super) fn open(&self, sealed: &str) -> Option<String> {
        self.sealer.as_ref()?.open(self.place(), sealed)
    }
}
