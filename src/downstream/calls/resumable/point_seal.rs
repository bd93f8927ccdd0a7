//! Seals the server's event ids from which a call can be resumed: the store never has them in the clear.

use std::fmt;
use std::sync::Arc;

use crate::downstream::proxy::Proxy;
use crate::store::seal::{SealedField, Sealer};
use crate::task::id::{Caller, TaskId};

/// The name under which an event id is sealed. Records of earlier versions have it, too.
const FIELD: &str = "held";

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
    pub(super) fn of(proxy: &Arc<Proxy>, caller: Caller, call: TaskId) -> Self {
        let sealer = proxy.runner.sealer().cloned();
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

    fn place(&self) -> SealedField<'_> {
        SealedField {
            task: self.call,
            caller: &self.caller,
            field: FIELD,
        }
    }

    /// `None`: without a key no other replica can resume the call.
    pub(super) fn seal(&self, event_id: &str) -> Option<Box<str>> {
        self.sealer.as_ref()?.seal(self.place(), event_id).ok()
    }

    pub(super) fn open(&self, sealed: &str) -> Option<String> {
        self.sealer.as_ref()?.open(self.place(), sealed)
    }
}
