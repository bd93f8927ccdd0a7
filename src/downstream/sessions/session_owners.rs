//! The owners of the sessions at the server, where clients must show a credential. Only its owner may use a session, read its
//! stream and end it, even if another caller has its id (2025-11-25, Security Best Practices, Session Hijacking).
//!
//! The replica that passed the `initialize` remembers the owner, and passes it to the others by a value in the store. A session
//! without a known owner, such as one of before raincheck started, passes. So does an id that the server gave to several
//! callers: it is no secret of one of them.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::lock::Mutex;
use crate::mcp::headers::SESSION_ID;
use crate::store::StoreError;
use crate::store::key_value::KeyValue;
use crate::store::kv::{Kind, Name};
use crate::store::quota::{Allowance, Quotas};
use crate::task::id::Caller;
use crate::upstream::client_session::newest::NewestSessions;

/// The time that a request waits for the store.
const PATIENCE: Duration = Duration::from_millis(250);

/// The time that the other replicas can find the owner of a session, from its begin.
const LIFETIME_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// The time that a session counts as one without a known owner after the store had no value.
const ASKED_AGAIN: Duration = Duration::from_secs(10);

/// The owners of the newest sessions.
#[derive(Debug)]
pub struct SessionOwners {
    newest: Mutex<NewestSessions<SessionKey, Owner>>,
    /// The values that this process wrote. Beyond them, the other replicas do not know the owner.
    told: Quotas,
}

#[derive(Debug, Clone, Copy)]
enum Owner {
    Known(Caller),
    /// The server gave the id to several callers.
    Several,
    /// The store had no value then.
    Unknown(Instant),
}

impl Default for SessionOwners {
    fn default() -> Self {
        let most = |entries| Allowance {
            entries,
            ..Allowance::ANY
        };
        Self {
            newest: Mutex::default(),
            told: Quotas::new(most(5_000), most(50_000)),
        }
    }
}

impl SessionOwners {
    /// Returns `true` if the session that the request names is another caller's. Where clients need not say who they are, this
    /// costs one comparison.
    pub(super) async fn is_of_another(
        &self,
        kv: &KeyValue,
        by: &Requester,
        headers: &HeaderMap,
    ) -> bool {
        if by.identity.is_none() {
            return false;
        }
        // A server may read another of several ids than raincheck does.
        if headers.get_all(SESSION_ID).iter().nth(1).is_some() {
            return true;
        }
        let Some(session) = key(headers) else {
            return false;
        };
        let known = self.newest.lock().find(&session);
        match known {
            Some(Owner::Several) => return false,
            Some(Owner::Known(owner)) if owner == by.caller => return false,
            Some(Owner::Unknown(then))
                if Instant::now().saturating_duration_since(then) < ASKED_AGAIN =>
            {
                return false;
            }
            // The server may have given the id of another to this caller meanwhile, through another replica.
            Some(Owner::Known(_) | Owner::Unknown(_)) | None => {}
        }
        let stored = timeout(PATIENCE, kv.find(name(session))).await;
        let stored = stored.ok().and_then(Result::ok).flatten();
        let owner = match (stored, known) {
            (Some(value), _) => read(&value),
            (None, Some(known @ Owner::Known(_))) => known,
            (None, _) => Owner::Unknown(Instant::now()),
        };
        self.newest.lock().remember(session, owner);
        matches!(owner, Owner::Known(owner) if owner != by.caller)
    }

    /// Remembers the owner of a session that the server has agreed to. The head of the answer names the session.
    pub(in crate::downstream) async fn note(
        &self,
        kv: &KeyValue,
        now_ms: u64,
        by: &Requester,
        head: &HeaderMap,
    ) {
        if by.identity.is_none() {
            return;
        }
        let Some(session) = key(head) else { return };
        let owner = {
            let mut newest = self.newest.lock();
            let owner = match newest.find(&session) {
                Some(Owner::Known(before)) if before != by.caller => Owner::Several,
                Some(Owner::Several) => Owner::Several,
                Some(Owner::Known(_) | Owner::Unknown(_)) | None => Owner::Known(by.caller),
            };
            newest.remember(session, owner);
            owner
        };
        let expires_ms = now_ms.saturating_add(LIFETIME_MS);
        let may_write = self.told.enter(by.caller, 0, expires_ms, now_ms).is_ok();
        let told = timeout(PATIENCE, self.tell(kv, session, owner, may_write)).await;
        if !matches!(told, Ok(Ok(()))) {
            tracing::debug!("replicas were not told whose a session is");
        }
    }

    /// Forgets a session that its owner ends.
    pub(super) fn end(
        &self,
        kv: &KeyValue,
        passing: &TaskTracker,
        by: &Requester,
        headers: &HeaderMap,
    ) {
        let Some(session) = key(headers).filter(|_| by.identity.is_some()) else {
            return;
        };
        if let Some(Owner::Known(_)) = self.newest.lock().forget(&session) {
            let kv = kv.clone();
            passing.spawn(async move {
                // Otherwise the value expires.
                let _ = timeout(PATIENCE, kv.remove(name(session))).await;
            });
        }
    }

    /// Writes the owner for the other replicas. `may_write`: this process may write one more value.
    async fn tell(
        &self,
        kv: &KeyValue,
        session: SessionKey,
        owner: Owner,
        may_write: bool,
    ) -> Result<(), StoreError> {
        let lifetime = Duration::from_millis(LIFETIME_MS);
        let Owner::Known(caller) = owner else {
            return kv.put(name(session), Bytes::new(), lifetime).await;
        };
        let value = Bytes::copy_from_slice(caller.as_bytes());
        let before = if may_write {
            kv.claim(name(session), value.clone(), lifetime).await?
        } else {
            kv.find(name(session)).await?
        };
        if before.is_some_and(|before| before != value) {
            self.newest.lock().remember(session, Owner::Several);
            return kv.put(name(session), Bytes::new(), lifetime).await;
        }
        Ok(())
    }
}

fn read(value: &[u8]) -> Owner {
    let caller = <[u8; 16]>::try_from(value);
    caller.map_or(Owner::Several, |caller| {
        Owner::Known(Caller::from_bytes(caller))
    })
}

/// The session of whichever caller.
fn key(headers: &HeaderMap) -> Option<SessionKey> {
    SessionKey::named(&Caller::from_bytes([0; 16]), headers)
}

fn name(session: SessionKey) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    Name::of(Kind::Client, &["owner", &session])
}
