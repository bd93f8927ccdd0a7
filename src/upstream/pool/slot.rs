//! The place of one session in the pool, and the right to use it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::mcp::error::Failure;
use crate::upstream::pool::key::PoolKey;
use crate::upstream::pool::permits::SessionPermit;
use crate::upstream::pool::rule::{MayAsk, Questions, SessionState};

/// A session that a pool can keep.
pub(in crate::upstream) trait PooledSession:
    fmt::Debug + Send + Sync + 'static
{
    /// Returns `true` if the session takes more requests.
    fn is_open(&self) -> bool;

    /// Which questions may come on the session.
    fn questions(&self) -> Questions;

    /// Ends the session, which no request uses: it takes none from here on.
    fn close_unused(self: &Arc<Self>);
}

/// The collection that keeps the slots.
pub(super) trait SlotHome<S: PooledSession>: fmt::Debug + Send + Sync {
    /// No request uses the session any more.
    fn freed(&self, slot: &Arc<Slot<S>>);
}

/// The place of one session, from before it is started.
#[derive(Debug)]
pub(super) struct Slot<S: PooledSession> {
    pub(super) key: PoolKey,
    home: Weak<dyn SlotHome<S>>,
    pub(super) session: OnceCell<Arc<S>>,
    /// Why the session could not be started. All who waited for that start share the outcome.
    pub(super) failure: OnceLock<Failure>,
    /// The session is being started, or was. A place that is given up before that is free at once.
    pub(super) is_begun: AtomicBool,
    users: AtomicUsize,
    askers: AtomicUsize,
    /// When the last user left.
    used: Mutex<Instant>,
    /// For the first who starts the session; and for as long as the session is kept, unless that keeps it itself.
    pub(super) permit: Mutex<Option<SessionPermit>>,
}

impl<S: PooledSession> Slot<S> {
    pub(super) fn new(
        key: PoolKey,
        home: Weak<dyn SlotHome<S>>,
        permit: Option<SessionPermit>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key,
            home,
            session: OnceCell::new(),
            failure: OnceLock::new(),
            is_begun: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            askers: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            permit: Mutex::new(permit),
        })
    }

    /// Returns `true` if the place was given up before the session was started.
    pub(super) fn is_vacant(&self) -> bool {
        !self.is_begun.load(Ordering::Relaxed) && self.users.load(Ordering::Relaxed) == 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.session.get().is_some_and(|session| !session.is_open())
    }

    pub(super) fn state(&self) -> SessionState {
        let session = self.session.get();
        SessionState {
            users: self.users.load(Ordering::Relaxed),
            askers: self.askers.load(Ordering::Relaxed),
            questions: session.map(|it| it.questions()).unwrap_or_default(),
        }
    }

    /// The session, and since when no call uses it. `None` while it is used, or not there.
    pub(super) fn unused(&self) -> Option<(Instant, &Arc<S>)> {
        let session = self.session.get().filter(|session| session.is_open())?;
        let is_used = self.users.load(Ordering::Relaxed) > 0;
        (!is_used).then(|| (*self.used.lock(), session))
    }
}

/// The right of one request to use a session. Dropped when the request is over.
#[derive(Debug)]
pub(in crate::upstream) struct SlotUse<S: PooledSession> {
    pub(super) slot: Arc<Slot<S>>,
    asks: MayAsk,
}

impl<S: PooledSession> SlotUse<S> {
    pub(in crate::upstream) fn key(&self) -> &PoolKey {
        &self.slot.key
    }

    /// The session, if it is there.
    pub(in crate::upstream) fn pooled(self) -> Result<Pooled<S>, Self> {
        match self.slot.session.get().filter(|it| it.is_open()) {
            Some(session) => Ok(Pooled {
                session: Arc::clone(session),
                slot: self,
            }),
            None => Err(self),
        }
    }

    pub(super) fn of(slot: &Arc<Slot<S>>, asks: MayAsk) -> Self {
        slot.users.fetch_add(1, Ordering::Relaxed);
        if asks == MayAsk::Maybe {
            slot.askers.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            slot: Arc::clone(slot),
            asks,
        }
    }
}

impl<S: PooledSession> Drop for SlotUse<S> {
    fn drop(&mut self) {
        // Before the count falls: otherwise the session could look unused since long ago, and be ended.
        *self.slot.used.lock() = Instant::now();
        if self.asks == MayAsk::Maybe {
            self.slot.askers.fetch_sub(1, Ordering::Relaxed);
        }
        let is_last = self.slot.users.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && let Some(home) = self.slot.home.upgrade() {
            home.freed(&self.slot);
        }
    }
}

/// A session in use. Dropped when its request is over.
#[derive(Debug)]
pub(in crate::upstream) struct Pooled<S: PooledSession> {
    pub(in crate::upstream) session: Arc<S>,
    pub(super) slot: SlotUse<S>,
}

impl<S: PooledSession> Pooled<S> {
    pub(in crate::upstream) fn key(&self) -> &PoolKey {
        &self.slot.slot.key
    }

    /// The same session for one more request of the same call, which may ask as that call may.
    pub(in crate::upstream) fn also(&self) -> Self {
        Self {
            session: Arc::clone(&self.session),
            // The first use of the call counts already as one that may ask.
            slot: SlotUse::of(&self.slot.slot, MayAsk::Never),
        }
    }
}
