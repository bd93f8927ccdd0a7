//! The resumable calls that this replica carries.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::large_answers::LargeAnswers;
use super::recent::RecentEvents;
use crate::downstream::legacy::pushes::SessionKey;
use crate::lock::Mutex;
use crate::store::kv::Name;

/// Calls at the same time. Beyond, a call ends with its client's connection.
const CALLS_MAX: usize = 1024;

/// Memory for all answers that the store could not take yet.
const ANSWERS_KIB_MAX: usize = 64 * 1024;

/// The resumable calls of this process.
#[derive(Debug)]
pub struct ResumableCalls {
    room: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    /// The large answers that this process wrote into the store.
    pub(super) large_answers: LargeAnswers,
    active: Mutex<HashMap<Name, ActiveCall>>,
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

#[derive(Debug)]
struct ActiveCall {
    session: SessionKey,
    request: Box<str>,
    recent: watch::Receiver<RecentEvents>,
    cancelled: CancellationToken,
}

/// One call in the registry. Dropped, the call leaves it.
#[derive(Debug)]
pub(super) struct Registration {
    calls: Arc<ResumableCalls>,
    name: Name,
    /// Cancelled when the client says that it no longer waits for the answer.
    pub(super) cancelled: CancellationToken,
    _room: OwnedSemaphorePermit,
}

impl ResumableCalls {
    fn active(&self) -> MutexGuard<'_, HashMap<Name, ActiveCall>> {
        self.active.lock()
    }

    /// Registers a call. `None`: there is no room, or the call is registered here already.
    pub(super) fn begin(
        self: &Arc<Self>,
        name: Name,
        session: SessionKey,
        request: &RawValue,
        recent: watch::Receiver<RecentEvents>,
    ) -> Option<Registration> {
        let room = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let cancelled = CancellationToken::new();
        let call = ActiveCall {
            session,
            request: request.get().into(),
            recent,
            cancelled: cancelled.clone(),
        };
        match self.active().entry(name) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => place.insert(call),
        };
        Some(Registration {
            calls: Arc::clone(self),
            name,
            cancelled,
            _room: room,
        })
    }

    /// The newest events of that call, once readers may be told of them.
    pub(super) fn find_begun(&self, name: Name) -> Option<watch::Receiver<RecentEvents>> {
        self.find(name).filter(|recent| recent.borrow().is_begun)
    }

    /// The newest events of that call, if it runs here.
    pub(super) fn find(&self, name: Name) -> Option<watch::Receiver<RecentEvents>> {
        self.active().get(&name).map(|call| call.recent.clone())
    }

    /// The client says that it no longer waits for this request. `false`: no such call runs here.
    pub(super) fn cancelled(&self, session: SessionKey, request: &RawValue) -> bool {
        let active = self.active();
        let mut of_session = active.values().filter(|call| call.session == session);
        let found = of_session.find(|call| *call.request == *request.get());
        found.map(|call| call.cancelled.cancel()).is_some()
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

    #[test]
    fn a_place_is_free_again_and_a_cancel_finds_its_call() {
        let calls = Arc::new(ResumableCalls::default());
        let caller = crate::task::id::Caller::from_bytes([1; 16]);
        let session = SessionKey::of(&caller, "s");
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let name = Name::of(crate::store::kv::Kind::Events, &["x"]);
        let (_tail, receiver) = watch::channel(RecentEvents::default());
        let registered = calls.begin(name, session, &id("1"), receiver).unwrap();
        assert!(calls.find(name).is_some() && calls.find_begun(name).is_none());
        let (_tail, receiver) = watch::channel(RecentEvents::default());
        assert!(calls.begin(name, session, &id("1"), receiver).is_none());
        assert!(!calls.cancelled(SessionKey::of(&caller, "other"), &id("1")));
        assert!(!calls.cancelled(session, &id("\"1\"")));
        assert!(!registered.cancelled.is_cancelled());
        assert!(calls.cancelled(session, &id("1")));
        assert!(registered.cancelled.is_cancelled());
        drop(registered);
        assert!(calls.find(name).is_none());
        assert_eq!(calls.room.available_permits(), CALLS_MAX);
    }
}
