//! Sessions of raincheck's own: notes in the store, so that every replica serves them.
//!
//! A session belongs to its caller: to anybody else it is as unknown as one that never was.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use hyper::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::stays;
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::{self, Rpc};
use crate::downstream::proxy::Shared;
use crate::mcp::error::RpcError;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::version::{Era, LEGACY_NEWEST};
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::quota::OverQuota;
use crate::task::id::Caller;

/// What the ids of these sessions begin with, and no other's.
pub(super) const PREFIX: &str = "raincheck-";

/// Its expiry is moved on at most this often.
const RENEWAL_MS: u64 = 60_000;

/// A change that meets others is made on what they left, so many times: of all that come at the same
/// time one succeeds each time.
const ATTEMPTS_MAX: usize = 64;

/// What is remembered of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) version: Box<str>,
    /// The client's, as a modern request declares them.
    pub(super) capabilities: Box<RawValue>,
    pub(super) client_info: Option<Box<RawValue>>,
    pub(super) log_level: Option<Box<str>>,
    /// The resources of whose changes the client wants to hear.
    pub(super) uris: BTreeSet<Box<str>>,
    pub(super) renewed_ms: u64,
    /// For how long its client may be silent.
    #[serde(default = "long")]
    pub(super) lasts_ms: u64,
    /// Since when that is so.
    #[serde(default)]
    pub(super) since_ms: u64,
}

fn long() -> u64 {
    stays::LONG_MS
}

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: Box<str>,
    pub(super) caller: Caller,
    pub(super) entry: Entry,
    /// The note that it was read from.
    stored: Bytes,
}

/// Why no session was begun.
#[derive(Debug)]
pub(super) enum NotBegun {
    /// The caller has as many that nobody used yet as it may.
    TooMany,
    Store(StoreError),
}

impl From<StoreError> for NotBegun {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum Unfound {
    Unnamed,
    Unknown,
    Store,
}

impl From<StoreError> for Unfound {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a session met a store that does not answer");
        Self::Store
    }
}

impl Unfound {
    pub(super) fn into_response(self, id: Option<&RawValue>) -> hyper::Response<Body> {
        match (self, id) {
            (Self::Unnamed, _) => response::refuse(
                StatusCode::BAD_REQUEST,
                "Bad request: Mcp-Session-Id is missing",
            ),
            // Whoever hears this begins anew.
            (Self::Unknown, _) => response::refuse(StatusCode::NOT_FOUND, "Session not found"),
            (Self::Store, Some(id)) => Rpc::store_unavailable(id.get()).into_response(),
            (Self::Store, None) => response::refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                &RpcError::internal("The session store does not answer; try again later"),
            ),
        }
    }
}

impl Session {
    /// A new one, known to every replica once this is `Ok`.
    pub(super) async fn begin(
        front: &Shared,
        caller: Caller,
        mut entry: Entry,
    ) -> Result<Self, NotBegun> {
        // 122 random bits of the operating system: nobody guesses it.
        let id = format!("{PREFIX}{}", Uuid::new_v4()).into();
        let now_ms = front.runner.ledger().now_ms();
        entry.renewed_ms = now_ms;
        entry.since_ms = now_ms;
        entry.lasts_ms = stays::FRESH_MS;
        let stored = text(&entry)?;
        let stays = &front.facade.stays;
        let entered = stays.begin(caller, stored.len(), now_ms);
        entered.map_err(|OverQuota| NotBegun::TooMany)?;
        let session = Self {
            id,
            caller,
            entry,
            stored,
        };
        let note = session.note(Kind::Session, &[]);
        let put = front
            .notes
            .put(note, session.stored.clone(), session.lasts());
        put.await?;
        Ok(session)
    }

    /// The session that the request names.
    pub(super) async fn find(
        front: &Shared,
        by: &Requester,
        headers: &HeaderMap,
    ) -> Result<Self, Unfound> {
        let id = headers.get(SESSION_ID).ok_or(Unfound::Unnamed)?;
        let id = id.to_str().unwrap_or_default();
        // A server that has sessions by now has the client's, too.
        let has_sessions = front.upstream.known_era() == Some(Era::Legacy);
        if has_sessions || !id.starts_with(PREFIX) {
            return Err(Unfound::Unknown);
        }
        let mut session = Self::load(front, id, by.caller)
            .await?
            .ok_or(Unfound::Unknown)?;
        session.renew(front).await?;
        Ok(session)
    }

    /// It speaks of tasks as revision 2025-11-25 does.
    pub(super) fn has_tasks(&self) -> bool {
        &*self.entry.version == LEGACY_NEWEST
    }

    /// As it is now. `None`: it has ended.
    pub(super) async fn reload(&self, front: &Shared) -> Result<Option<Self>, StoreError> {
        Self::load(front, &self.id, self.caller).await
    }

    async fn load(front: &Shared, id: &str, caller: Caller) -> Result<Option<Self>, StoreError> {
        let name = name(Kind::Session, &caller, id, &[]);
        let Some(bytes) = front.notes.find(name).await? else {
            return Ok(None);
        };
        let entry = serde_json::from_slice(&bytes)
            .map_err(|_| StoreError::Corrupt("a session that cannot be read"))?;
        let id = id.into();
        Ok(Some(Self {
            id,
            caller,
            entry,
            stored: bytes,
        }))
    }

    /// Moves its end on, where that was not done a short time ago. Whoever changes it does so as well.
    async fn renew(&mut self, front: &Shared) -> Result<(), Unfound> {
        let now_ms = front.runner.ledger().now_ms();
        let is_fresh = self.entry.lasts_ms == stays::FRESH_MS;
        if !is_fresh && now_ms < self.entry.renewed_ms.saturating_add(RENEWAL_MS) {
            return Ok(());
        }
        let mut renewed = self.clone();
        renewed.entry.renewed_ms = now_ms;
        if is_fresh {
            let (stays, since_ms) = (&front.facade.stays, self.entry.since_ms);
            let lasts_ms = stays.first_use(self.caller, self.stored.len(), since_ms, now_ms);
            let Some(lasts_ms) = lasts_ms else {
                return Ok(());
            };
            renewed.entry.lasts_ms = lasts_ms;
            renewed.entry.since_ms = now_ms;
        }
        if renewed.write(front).await? {
            *self = renewed;
        } else if is_fresh {
            renewed.leave(front);
        }
        // Else another request changed it, which renews it, too; or it has just ended.
        Ok(())
    }

    /// Changes it as it is now. False where `change` refuses.
    pub(super) async fn change(
        &self,
        front: &Shared,
        change: impl Fn(&mut Entry) -> bool,
    ) -> Result<bool, Unfound> {
        for _ in 0..ATTEMPTS_MAX {
            let mut now = self.reload(front).await?.ok_or(Unfound::Unknown)?;
            if !change(&mut now.entry) {
                return Ok(false);
            }
            now.entry.renewed_ms = front.runner.ledger().now_ms();
            let (before, after) = (now.stored.len(), text(&now.entry)?.len());
            if !now.resize(front, (before, after)) {
                return Ok(false);
            }
            // Here or on another replica it may be changed at the same time.
            if now.write(front).await? {
                return Ok(true);
            }
            now.resize(front, (after, before));
        }
        Err(Unfound::Store)
    }

    /// Counts as that large among its caller's, where that is not too much.
    fn resize(&self, front: &Shared, sizes: (usize, usize)) -> bool {
        let now_ms = front.runner.ledger().now_ms();
        let Entry {
            since_ms, lasts_ms, ..
        } = self.entry;
        let stays = &front.facade.stays;
        stays.resize(&self.caller, sizes, (since_ms, lasts_ms), now_ms)
    }

    /// From now on nobody knows it.
    pub(super) async fn end(&self, front: &Shared) -> Result<(), StoreError> {
        front.notes.remove(self.note(Kind::Session, &[])).await?;
        self.leave(front);
        Ok(())
    }

    /// It counts no more among its caller's.
    fn leave(&self, front: &Shared) {
        let now_ms = front.runner.ledger().now_ms();
        let Entry {
            since_ms, lasts_ms, ..
        } = self.entry;
        let bytes = self.stored.len();
        let stays = &front.facade.stays;
        stays.end(&self.caller, bytes, since_ms, lasts_ms, now_ms);
    }

    fn lasts(&self) -> Duration {
        Duration::from_millis(self.entry.lasts_ms)
    }

    /// Writes it as it is here. False where it is not what was read any more.
    async fn write(&mut self, front: &Shared) -> Result<bool, StoreError> {
        let text = text(&self.entry)?;
        let stands = std::mem::replace(&mut self.stored, text.clone());
        let note = self.note(Kind::Session, &[]);
        front.notes.replace(note, stands, text, self.lasts()).await
    }

    /// The name of something that belongs to this session.
    pub(super) fn note(&self, kind: Kind, parts: &[&str]) -> Name {
        name(kind, &self.caller, &self.id, parts)
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey::of(&self.caller, &self.id)
    }
}

fn text(entry: &Entry) -> Result<Bytes, StoreError> {
    let text = serde_json::to_vec(entry);
    text.map(Bytes::from)
        .map_err(|_| StoreError::Corrupt("a session that cannot be written"))
}

fn name(kind: Kind, caller: &Caller, id: &str, parts: &[&str]) -> Name {
    let caller = Uuid::from_bytes(*caller.as_bytes()).to_string();
    let whole = [&["facade", &caller, id], parts].concat();
    Name::of(kind, &whole)
}
