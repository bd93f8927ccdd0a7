//! The client sessions that are in use in this process. Whoever uses one holds it; the registry does
//! not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

use super::super::origin::Origin;
use super::super::session::Session;

/// Sessions in use at the same time. Each has a stream or a call, which have bounds of their own.
const SESSIONS_MAX: usize = 10_000;

/// How a client names its session, and itself.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct Identity {
    pub(in crate::upstream) caller: [u8; 16],
    /// A server without sessions gives none.
    pub(in crate::upstream) id: Option<HeaderValue>,
    pub(in crate::upstream) version: HeaderValue,
    /// Of the client, where the server may have them.
    pub(in crate::upstream) credentials: Option<HeaderValue>,
}

type Key = ([u8; 16], HeaderValue);

#[derive(Debug)]
pub(in crate::upstream) struct ClientSessions {
    origin: Arc<Origin>,
    services: TaskTracker,
    by_key: Mutex<HashMap<Key, Weak<Session>>>,
}

impl ClientSessions {
    pub(in crate::upstream) fn new(origin: Arc<Origin>, services: TaskTracker) -> Self {
        Self {
            origin,
            services,
            by_key: Mutex::default(),
        }
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<Key, Weak<Session>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, which is one for all who name it alike. `None`: too many are in use.
    pub(in crate::upstream) fn get(&self, identity: Identity) -> Option<Arc<Session>> {
        let new = |identity| {
            let (origin, services) = (&self.origin, self.services.clone());
            Arc::new(Session::of_client(origin, services, identity))
        };
        // Without an id, two clients could not be told apart.
        let Some(id) = identity.id.clone() else {
            return Some(new(identity));
        };
        let key = (identity.caller, id);
        let mut by_key = self.by_key();
        if let Some(known) = by_key.get(&key).and_then(Weak::upgrade) {
            return Some(known);
        }
        if by_key.len() >= SESSIONS_MAX {
            by_key.retain(|_, session| session.strong_count() > 0);
        }
        if by_key.len() >= SESSIONS_MAX {
            tracing::warn!("too many client sessions are in use");
            return None;
        }
        let session = new(identity);
        by_key.insert(key, Arc::downgrade(&session));
        Some(session)
    }

    /// Its client ended it: whoever names it from here on means another.
    pub(in crate::upstream) fn forget(&self, session: &Arc<Session>) {
        let is_it = |known: &Weak<Session>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(session));
        self.by_key().retain(|_, known| !is_it(known));
    }
}
