//! The owners of the sessions at the server, where clients must show a credential. Only its owner may use a session, read its
//! stream and end it, even if another caller has its id (2025-11-25, Security Best Practices, Session Hijacking).
//!
//! A session without a known owner, such as one of before raincheck started, passes. So does an id that the server gave to
//! several callers: it is no secret of one of them.

use bytes::Bytes;
use hyper::HeaderMap;

use super::session_facts::{SessionFact, SessionFacts};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::mcp::headers::SESSION_ID;
use crate::task::id::Caller;

/// The owners of the newest sessions.
pub type SessionOwners = SessionFacts<SessionOwner>;

/// The owner of a session id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SessionOwner {
    One(Caller),
    /// The server gave the id to several callers.
    Several,
}

impl SessionFact for SessionOwner {
    const SEVERAL: Option<Self> = Some(Self::Several);
    const NAMED: &'static [&'static str] = &["owner"];
    const LIFETIME_MS: u64 = 7 * 24 * 60 * 60 * 1000;
    const VALUES_MAX: u64 = 50_000;

    fn value(self) -> Option<Bytes> {
        Some(match self {
            Self::One(caller) => Bytes::copy_from_slice(caller.as_bytes()),
            Self::Several => Bytes::new(),
        })
    }

    fn read(value: &[u8]) -> Option<Self> {
        let caller = <[u8; 16]>::try_from(value).ok();
        Some(caller.map_or(Self::Several, |caller| {
            Self::One(Caller::from_bytes(caller))
        }))
    }
}

impl SessionOwners {
    /// Returns `true` if the session that the request names is another caller's. Where clients need not say who they are, this
    /// costs one comparison.
    pub(super) async fn is_of_another(&self, by: &Requester, headers: &HeaderMap) -> bool {
        if by.identity.is_none() {
            return false;
        }
        // A server may read another of several ids than raincheck does.
        if headers.get_all(SESSION_ID).iter().nth(1).is_some() {
            return true;
        }
        let Some(session) = key(by, headers) else {
            return false;
        };
        let is_of_another =
            |owner| matches!(owner, SessionOwner::One(caller) if caller != by.caller);
        // The server may have given the id of another to this caller meanwhile, through another replica.
        let owner = self.find(session, |owner| !is_of_another(owner)).await;
        owner.is_some_and(is_of_another)
    }

    /// Remembers the owner of a session that the server has agreed to. The head of the answer names the session.
    pub(in crate::downstream) async fn note(&self, by: &Requester, head: &HeaderMap) {
        if let Some(session) = key(by, head) {
            self.begin(by, session, SessionOwner::One(by.caller)).await;
        }
    }
}

/// The session of whichever caller. `None`: clients need not say who they are, or the head names no session.
pub(super) fn key(by: &Requester, headers: &HeaderMap) -> Option<SessionKey> {
    by.identity.as_ref()?;
    SessionKey::named(&Caller::from_bytes([0; 16]), headers)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use hyper::header::HeaderValue;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::auth::callers::Callers;
    use crate::auth::identity::Identity;
    use crate::base::clock::{Clock, Manual};
    use crate::mcp::version::Era;
    use crate::store::key_value::KeyValue;
    use crate::store::memory::Memory;
    use crate::store::patience::StorePatience;

    fn store() -> KeyValue {
        let clock: Arc<dyn Clock> = Arc::new(Manual::at(0));
        let patience = StorePatience {
            read: Duration::ZERO,
            create: Duration::ZERO,
        };
        KeyValue::new(Arc::new(Memory::new(Arc::clone(&clock))), clock, patience)
    }

    fn by(number: u8) -> Requester {
        let (parts, ()) = hyper::Request::new(()).into_parts();
        let identity = Identity {
            caller: Caller::from_bytes([number; 16]),
            name: HeaderValue::from_static("c"),
            label: None,
            scopes: [].into(),
            ends_at_ms: None,
        };
        let (callers, identity) = (Callers::new(&[1; 32]), Some(Arc::new(identity)));
        Requester::of(
            &callers,
            &parts,
            Era::Legacy,
            identity,
            None,
            Arc::default(),
        )
    }

    fn session() -> HeaderMap {
        HeaderMap::from_iter([(SESSION_ID, HeaderValue::from_static("s"))])
    }

    #[tokio::test]
    async fn a_session_is_its_owners_on_every_replica_until_its_end() {
        let (kv, jobs) = (store(), TaskTracker::new());
        let replica = || SessionOwners::new(&kv, &jobs);
        let (first, second, session) = (replica(), replica(), session());
        first.note(&by(1), &session).await;
        for owners in [&first, &second] {
            assert!(owners.is_of_another(&by(2), &session).await);
            assert!(!owners.is_of_another(&by(1), &session).await);
        }
        second.end(&by(1), key(&by(1), &session));
        jobs.close();
        jobs.wait().await;
        assert!(!replica().is_of_another(&by(2), &session).await);
    }

    #[tokio::test]
    async fn an_id_of_several_callers_is_nobodys() {
        let (kv, jobs) = (store(), TaskTracker::new());
        let replica = || SessionOwners::new(&kv, &jobs);
        let (first, second, session) = (replica(), replica(), session());
        first.note(&by(1), &session).await;
        second.note(&by(2), &session).await;
        // The caller that lost the id looks again, and one that ends its session leaves the id to the others.
        assert!(!first.is_of_another(&by(2), &session).await);
        first.end(&by(1), key(&by(1), &session));
        first.note(&by(3), &session).await;
        jobs.close();
        jobs.wait().await;
        for owners in [&first, &second, &replica()] {
            for number in 1..=3 {
                assert!(!owners.is_of_another(&by(number), &session).await);
            }
        }
    }
}
