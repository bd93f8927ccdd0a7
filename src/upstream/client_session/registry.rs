//! The client sessions that are in use in this process. Their users own them, and the registry does not.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, Weak};

use async_trait::async_trait;
use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

use crate::base::lock::Mutex;
use crate::telemetry::limits::{self, LimitHit};
use crate::upstream::client_session::cookies::ClientCookies;
use crate::upstream::client_session::shared::ClientStreams;
use crate::upstream::http::origin::Origin;
use crate::upstream::sessions::session::{ServerSession, SessionIdentity, Unasked};

/// The number of sessions that may be in use at the same time. Each has a stream or a call, which have bounds of their
/// own.
const SESSIONS_MAX: usize = 10_000;

/// The stream on a server without sessions, where no stream belongs to a session.
#[derive(Debug)]
struct NobodysStream;

#[async_trait]
impl Unasked for NobodysStream {
    fn is_a_clients(&self) -> bool {
        true
    }

    async fn hear(&self, _session: &Arc<ServerSession>) {}
}

type ClientSessionKey = ([u8; 16], HeaderValue);

#[derive(Debug)]
pub(in crate::upstream) struct ClientSessions {
    origin: Arc<Origin>,
    services: TaskTracker,
    by_key: Mutex<HashMap<ClientSessionKey, Weak<ServerSession>>>,
    pub(in crate::upstream) cookies: ClientCookies,
}

impl ClientSessions {
    pub(in crate::upstream) fn new(origin: Arc<Origin>, services: TaskTracker) -> Self {
        Self {
            origin,
            services,
            by_key: Mutex::default(),
            cookies: ClientCookies::default(),
        }
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<ClientSessionKey, Weak<ServerSession>>> {
        self.by_key.lock()
    }

    /// The session of that identity, one for all who use it. `None`: too many are in use.
    pub(in crate::upstream) fn get(&self, identity: SessionIdentity) -> Option<Arc<ServerSession>> {
        let new = |identity: SessionIdentity| {
            let unasked: Box<dyn Unasked> = if identity.id.is_some() {
                Box::new(ClientStreams::new())
            } else {
                Box::new(NobodysStream)
            };
            let (origin, services) = (&self.origin, self.services.clone());
            let id = identity.id.as_ref();
            let cookies = id.map(|id| self.cookies.of(identity.caller, id));
            Arc::new(ServerSession::of_client(
                origin,
                services,
                identity,
                cookies.unwrap_or_default(),
                unasked,
            ))
        };
        // Without an id, two clients could not be told apart.
        let Some(id) = identity.id.clone() else {
            return Some(new(identity));
        };
        let key = (identity.caller, id);
        let mut by_key = self.by_key();
        if let Some(known) = by_key.get(&key).and_then(Weak::upgrade) {
            known.renew(identity.credentials.as_ref());
            return Some(known);
        }
        // Unused entries are removed only when the room is needed, because that goes through all of them.
        if by_key.len() >= SESSIONS_MAX {
            by_key.retain(|_, session| session.strong_count() > 0);
        }
        if by_key.len() >= SESSIONS_MAX {
            limits::refused(LimitHit::Sessions);
            tracing::warn!("too many client sessions are in use");
            return None;
        }
        let session = new(identity);
        by_key.insert(key, Arc::downgrade(&session));
        Some(session)
    }

    /// Forgets a session that its client ended. The same identity means another session from here on.
    pub(in crate::upstream) fn forget(&self, session: &Arc<ServerSession>) {
        // Compared by address, because the key may already stand for a newer session of the same id.
        let is_it =
            |known: &Weak<ServerSession>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(session));
        self.by_key().retain(|_, known| !is_it(known));
    }
}
