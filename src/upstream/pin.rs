//! The pin, which keeps several requests on one session of the server, or on one line to it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::base::lock::Mutex;

/// The object that a pin holds: a session, or a line. Each kind of connection defines its own.
pub(super) trait Pinned: Any + Send {
    /// Returns `true` if it is a client's own session, which no other session can replace.
    fn is_a_clients(&self) -> bool;

    /// Returns `true` if it is held for good: neither lost nor given back.
    fn stays(&self) -> bool;

    /// Returns `false` if what is held has ended, as far as is known.
    fn is_open(&self) -> bool {
        true
    }

    /// Keeps a client's own session at the server while the token lives, even if the client ends it. `None`:
    /// the session is no client's.
    fn keep(&self) -> Option<TaskTrackerToken>;

    /// All requests are answered, so what was held is free for other calls.
    fn give_back(self: Box<Self>);
}

/// Requests that bear the same pin use the session or the line of the first of them, also at the
/// same time. Dropped with all its clones, a session is given up.
#[derive(Clone, Default)]
pub struct Pin(Arc<Mutex<Option<Box<dyn Pinned>>>>);

impl Pin {
    /// A pin that holds this session or line from the start.
    pub(super) fn of(pinned: impl Pinned) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(pinned)))))
    }

    pub(super) fn is_a_clients(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|it| it.is_a_clients())
    }

    /// Returns `true` if a session or a line is held that has not ended, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|it| it.is_open())
    }

    /// Keeps a client's own session at the server while the token lives, though its client ends it.
    pub fn keep(&self) -> Option<TaskTrackerToken> {
        self.0.lock().as_ref()?.keep()
    }

    /// Applies `of` to what is held, if that is of the kind.
    pub(super) fn with<T: Pinned, R>(&self, of: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        let held = self.0.lock();
        let pinned: &dyn Any = &**held.as_ref()?;
        of(pinned.downcast_ref()?)
    }

    /// Holds the session or line, unless something is held already. Then it comes back to the caller.
    pub(super) fn hold_first<T: Pinned>(&self, pinned: T) -> Option<T> {
        let mut held = self.0.lock();
        if held.is_some() {
            return Some(pinned);
        }
        *held = Some(Box::new(pinned));
        None
    }

    /// Holds the session or line in place of what was held.
    pub(super) fn hold(&self, pinned: impl Pinned) {
        *self.0.lock() = Some(Box::new(pinned));
    }

    /// The server has lost what is held, so the next session is held instead. A client's own session stays.
    pub(super) fn lose<T: Pinned>(&self) {
        let is_lost = |held: &mut Box<dyn Pinned>| {
            let pinned: &dyn Any = &**held;
            pinned.is::<T>() && !held.stays()
        };
        // Dropped after the lock is free, because the end of a session runs code of the pool.
        let lost = self.0.lock().take_if(is_lost);
        drop(lost);
    }

    /// All requests are answered, so what was held is free for other calls. A client's own session stays.
    pub(super) fn give_back(&self) {
        // Taken out first: the end of a use runs code of the pool, which must not happen under this lock.
        let held = self.0.lock().take_if(|held| !held.stays());
        if let Some(pinned) = held {
            pinned.give_back();
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin")
    }
}
