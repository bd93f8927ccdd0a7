//! The resumable calls that this replica carries, by their logs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::large_answers::LargeAnswers;
use crate::base::lock::Mutex;
use crate::downstream::calls::registry::CallEntry;
use crate::runner::call_log::recent::RecentEvents;
use crate::store::kv::Name;

/// Calls at the same time. Beyond, a call ends with its client's connection.
const CALLS_MAX: usize = 1024;

/// Memory for all answers that the store could not take yet.
const ANSWERS_KIB_MAX: usize = 64 * 1024;

/// The resumable calls of this process, by their logs. A cancel finds them in the registry of all calls.
#[derive(Debug)]
pub struct ResumableCalls {
    room: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    /// The large answers that this process wrote into the store.
    pub(super) large_answers: LargeAnswers,
    active: Mutex<HashMap<Name, watch::Receiver<RecentEvents>>>,
}

impl Default for ResumableCalls {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(CALLS_MAX)),
            answers: Arc::new(Semaphore::new(ANSWERS_KIB_MAX)),
            large_answers: LargeAnswers::default(),
            active: Mutex::default(),
        }
    }
}

/// One call in the registry. Dropped, the call leaves it.
#[derive(Debug)]
pub(super) struct Registration {
    calls: Arc<ResumableCalls>,
    name: Name,
    /// The call by its session and id, which a cancel names.
    pub(super) entry: CallEntry,
    _room: OwnedSemaphorePermit,
}

impl ResumableCalls {
    fn active(&self) -> MutexGuard<'_, HashMap<Name, watch::Receiver<RecentEvents>>> {
        self.active.lock()
    }

    /// Registers a call. `None`: there is no room, or the call is registered here already.
    pub(super) fn begin(
        self: &Arc<Self>,
        name: Name,
        entry: CallEntry,
        recent: watch::Receiver<RecentEvents>,
    ) -> Option<Registration> {
        let room = Arc::clone(&self.room).try_acquire_owned().ok()?;
        match self.active().entry(name) {
            // A second registration would remove the first one from the table when it is dropped.
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => place.insert(recent),
        };
        Some(Registration {
            calls: Arc::clone(self),
            name,
            entry,
            _room: room,
        })
    }

    /// Returns the newest events of that call, once readers may be notified of them.
    pub(super) fn find_begun(&self, name: Name) -> Option<watch::Receiver<RecentEvents>> {
        self.find(name).filter(|recent| recent.borrow().is_begun)
    }

    /// The newest events of that call, if it runs here.
    pub(super) fn find(&self, name: Name) -> Option<watch::Receiver<RecentEvents>> {
        self.active().get(&name).cloned()
    }

    /// Takes memory for an answer that waits for the store.
    pub(super) fn memory_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
        Arc::clone(&self.answers).try_acquire_many_owned(kib).ok()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.calls.active().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::calls::registry::{CallKind, CallRegistry, Cancelled};
    use crate::downstream::inbound::session_key::SessionKey;
    use crate::task::gave_up::CancelCause;

    #[test]
    fn a_log_has_one_call_and_its_place_is_free_again() {
        let calls = Arc::new(ResumableCalls::default());
        let registry = CallRegistry::default();
        let session = SessionKey::unnamed();
        let enter = || registry.enter(CallKind::Resumable, session, "1").unwrap();
        let name = Name::of(crate::store::kv::Kind::Events, &["x"]);
        let (_tail, receiver) = watch::channel(RecentEvents::default());
        let registered = calls.begin(name, enter(), receiver).unwrap();
        assert!(calls.find(name).is_some() && calls.find_begun(name).is_none());
        let (_tail, receiver) = watch::channel(RecentEvents::default());
        assert!(calls.begin(name, enter(), receiver).is_none());
        assert_eq!(
            registry.cancel(session, "1", CancelCause::Unwanted),
            Cancelled::AtServer
        );
        assert!(registered.entry.is_cancelled());
        drop(registered);
        assert!(calls.find(name).is_none());
        assert_eq!(
            registry.cancel(session, "1", CancelCause::Unwanted),
            Cancelled::Nothing
        );
        assert_eq!(calls.room.available_permits(), CALLS_MAX);
    }
}
