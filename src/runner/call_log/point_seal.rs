//! Seals the server's event ids from which a call can be resumed: the store never has them in the clear.

use std::fmt;

use super::super::state::Runner;
use crate::store::seal::{Binding, Sealer};
use crate::task::id::{Caller, TaskId};

/// The kind of value that an event id is sealed as.
const KIND: &str = "held";

/// Seals and opens the event ids of one call. Cheap to clone.
#[derive(Clone)]
pub(super) struct PointSeal {
    sealer: Option<Sealer>,
    caller: Caller,
    call: TaskId,
}

impl fmt::Debug for PointSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PointSeal")
    }
}

impl PointSeal {
    pub(super) fn of(runner: &Runner, caller: Caller, call: TaskId) -> Self {
        let sealer = runner.sealer().cloned();
        Self {
            sealer,
            caller,
            call,
        }
    }

    #[cfg(test)]
    pub(super) fn of_none(caller: Caller, call: TaskId) -> Self {
        Self {
            sealer: None,
            caller,
            call,
        }
    }

    fn binding(&self) -> Binding<'_> {
        Binding {
            kind: KIND,
            id: self.call.as_bytes(),
            caller: self.caller.as_bytes(),
            number: 0,
        }
    }

    /// `None`: without a key no other replica can resume the call.
    pub(super) fn seal(&self, event_id: &str) -> Option<Box<str>> {
        let sealer = self.sealer.as_ref()?;
        sealer.seal_text(&self.binding(), event_id).ok()
    }

    pub(super) fn open(&self, sealed: &str) -> Option<String> {
        let sealer = self.sealer.as_ref()?;
        sealer.open_text(&self.binding(), sealed)
    }
}
