//! Sessions of raincheck's own: values in the store, so that every replica serves them.
//!
//! A session belongs to its caller. Other callers get the same answer as for a session that never was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::lifetimes;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::session_refusal::SessionRefusal;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::version::{Era, LEGACY_NEWEST};
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::quota::OverQuota;
use crate::task::clients::{ClientTerms, KnownClient};
use crate::task::id::Caller;

/// Begins the id of every session of raincheck's own.
pub(super) const PREFIX: &str = "raincheck-";

/// The pause between two renewals of a session's expiry.
const RENEWAL_MS: u64 = 60_000;

/// The number of times that a change is tried again after a conflict with another change. Of changes at the same
/// time, one succeeds each time.
const ATTEMPTS_MAX: usize = 64;

/// The state that is remembered of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SessionEntry {
    pub(super) version: Box<str>,
    /// The client's capabilities, as a modern request declares them.
    pub(super) capabilities: Box<RawValue>,
    pub(super) client_info: Option<Box<RawValue>>,
    pub(super) log_level: Option<Box<str>>,
    /// The resources that the client subscribed to.
    pub(super) uris: BTreeSet<Box<str>>,
    pub(super) renewed_ms: u64,
    /// The time that the client may be silent.
    #[serde(default = "long")]
    pub(super) lasts_ms: u64,
    /// Since when `lasts_ms` holds.
    #[serde(default)]
    pub(super) since_ms: u64,
}

fn long() -> u64 {
    lifetimes::LONG_MS
}

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: Box<str>,
    pub(super) caller: Caller,
    pub(super) entry: SessionEntry,
    /// The key of the session in this process.
    pub(super) key: SessionKey,
    /// The name of the stored value.
    pub(super) name: Name,
    /// The stored value that the session was read from.
    stored: Bytes,
}

/// Why no session was begun.
#[derive(Debug)]
pub(super) enum BeginError {
    /// There is no room for a session of this size.
    TooMany,
    Store(StoreError),
}

impl From<StoreError> for BeginError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Session {
    /// Begins a session. Every replica knows it once this is `Ok`.
    pub(super) async fn begin(
        proxy: &Arc<Proxy>,
        caller: Caller,
        mut entry: SessionEntry,
    ) -> Result<Self, BeginError> {
        // 122 random bits of the operating system: the id cannot be guessed.
        let id: Box<str> = format!("{PREFIX}{}", Uuid::new_v4()).into();
        let now_ms = proxy.runner.ledger().now_ms();
        entry.renewed_ms = now_ms;
        entry.since_ms = now_ms;
        entry.lasts_ms = lifetimes::FRESH_MS;
        let stored = text(&entry)?;
        let session = Self {
            key: SessionKey::of(&caller, &id),
            name: name(Kind::Session, &caller, &id, &[]),
            id,
            caller,
            entry,
            stored,
        };
        let lifetimes = &proxy.session_lifetimes;
        let begun = lifetimes.begin(session.name, caller, session.stored.len(), now_ms);
        for unused in begun.map_err(|OverQuota| BeginError::TooMany)? {
            make_room(proxy, unused).await?;
        }
        let (stored, lasts) = (session.stored.clone(), session.lasts());
        // If this fails, the write is in doubt, so the session still counts for a minute.
        proxy.kv.put(session.name, stored, lasts).await?;
        Ok(session)
    }

    /// Finds the session that the request names.
    pub(super) async fn find(
        proxy: &Arc<Proxy>,
        by: &Requester,
        headers: &HeaderMap,
    ) -> Result<Self, SessionRefusal> {
        let id = headers.get(SESSION_ID).ok_or(SessionRefusal::Unnamed)?;
        let id = id.to_str().unwrap_or_default();
        let key = by.session.ok_or(SessionRefusal::Unknown)?;
        // A server that turned out to have sessions has this client's, too.
        let has_sessions = proxy.upstream.known_era() == Some(Era::Legacy);
        if has_sessions || !id.starts_with(PREFIX) {
            return Err(SessionRefusal::Unknown);
        }
        let mut session = Self::load(proxy, id, by.caller, key)
            .await?
            .ok_or(SessionRefusal::Unknown)?;
        session.renew(proxy).await?;
        Ok(session)
    }

    /// The client, as it named itself.
    pub(super) fn client(&self) -> ClientTerms {
        let info = self.entry.client_info.as_deref();
        ClientTerms::of(info.and_then(KnownClient::of_info))
    }

    /// Returns `true` if the session knows the tasks of revision 2025-11-25.
    pub(super) fn has_tasks(&self) -> bool {
        &*self.entry.version == LEGACY_NEWEST
    }

    /// Reads the session again. `None`: the session has ended.
    pub(super) async fn reload(&self, proxy: &Arc<Proxy>) -> Result<Option<Self>, StoreError> {
        Self::load(proxy, &self.id, self.caller, self.key).await
    }

    /// Reads the session with this id. `key`: the key of the same session, which costs a digest.
    pub(super) async fn load(
        proxy: &Arc<Proxy>,
        id: &str,
        caller: Caller,
        key: SessionKey,
    ) -> Result<Option<Self>, StoreError> {
        let name = name(Kind::Session, &caller, id, &[]);
        let bytes = match proxy.kv.find(name).await {
            Ok(Some(bytes)) => bytes,
            // The client begins another session, and can do nothing about one that nobody can read.
            Ok(None) | Err(StoreError::Corrupt(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(entry) = serde_json::from_slice(&bytes) else {
            return Ok(None);
        };
        Ok(Some(Self {
            id: id.into(),
            caller,
            entry,
            key,
            name,
            stored: bytes,
        }))
    }

    /// Moves the session's expiry on, unless that was done a short time ago. A change moves it on, too.
    async fn renew(&mut self, proxy: &Arc<Proxy>) -> Result<(), SessionRefusal> {
        let now_ms = proxy.runner.ledger().now_ms();
        let is_fresh = self.entry.lasts_ms == lifetimes::FRESH_MS;
        if !is_fresh && now_ms < self.entry.renewed_ms.saturating_add(RENEWAL_MS) {
            return Ok(());
        }
        let mut renewed = self.clone();
        renewed.entry.renewed_ms = now_ms;
        if is_fresh {
            let (lifetimes, since_ms) = (&proxy.session_lifetimes, self.entry.since_ms);
            let whose = (self.caller, self.stored.len());
            let lasts_ms = lifetimes.first_use(&self.name, whose, since_ms, now_ms);
            let Some(lasts_ms) = lasts_ms else {
                return Ok(());
            };
            renewed.entry.lasts_ms = lasts_ms;
            renewed.entry.since_ms = now_ms;
        }
        let written = renewed.write(proxy).await;
        if matches!(written, Ok(true)) {
            *self = renewed;
        } else if is_fresh {
            // Another request used the session first and counts it, or the session has just ended, or is still unused.
            renewed.leave(proxy);
        }
        written?;
        // Otherwise another request changed the session, which renewed it, or the session has just ended.
        Ok(())
    }

    /// Changes the session as it is in the store now. False if `change` refuses.
    pub(super) async fn change(
        &self,
        proxy: &Arc<Proxy>,
        change: impl Fn(&mut SessionEntry) -> bool,
    ) -> Result<bool, SessionRefusal> {
        for _ in 0..ATTEMPTS_MAX {
            let mut now = self.reload(proxy).await?.ok_or(SessionRefusal::Unknown)?;
            if !change(&mut now.entry) {
                return Ok(false);
            }
            now.entry.renewed_ms = proxy.runner.ledger().now_ms();
            let (before, after) = (now.stored.len(), text(&now.entry)?.len());
            if !now.resize(proxy, (before, after)) {
                return Ok(false);
            }
            // Another request may change the session at the same time, here or on another replica.
            if now.write(proxy).await? {
                return Ok(true);
            }
            // This change was not written, so its size must not stay counted.
            now.resize(proxy, (after, before));
        }
        Err(SessionRefusal::Store)
    }

    /// Counts the new size of the session among its caller's. False: with it, the sessions of the caller would be
    /// larger than allowed.
    fn resize(&self, proxy: &Arc<Proxy>, sizes: (usize, usize)) -> bool {
        let now_ms = proxy.runner.ledger().now_ms();
        let SessionEntry {
            since_ms, lasts_ms, ..
        } = self.entry;
        let lifetimes = &proxy.session_lifetimes;
        lifetimes.resize(&self.caller, sizes, (since_ms, lasts_ms), now_ms)
    }

    /// Ends the session on every replica.
    pub(super) async fn end(&self, proxy: &Arc<Proxy>) -> Result<(), StoreError> {
        proxy.kv.remove(self.name).await?;
        self.leave(proxy);
        // Behind the removal: a watch that looks earlier would find the session alive.
        self.tell_change(proxy).await;
        Ok(())
    }

    /// Notifies every [`SessionWatch`](super::watch::SessionWatch) that the session was changed or ended.
    pub(super) async fn tell_change(&self, proxy: &Arc<Proxy>) {
        if let Err(error) = proxy.kv.tell(self.name).await {
            tracing::warn!(%error, "replicas were not told of the change of a session, and see it within a minute");
        }
    }

    /// Unix milliseconds at which the session ends, unless it is used before.
    pub(super) fn expires_ms(&self) -> u64 {
        let SessionEntry {
            renewed_ms,
            lasts_ms,
            ..
        } = self.entry;
        renewed_ms.saturating_add(lasts_ms)
    }

    /// The session no longer counts among its caller's.
    fn leave(&self, proxy: &Arc<Proxy>) {
        let now_ms = proxy.runner.ledger().now_ms();
        let SessionEntry {
            since_ms, lasts_ms, ..
        } = self.entry;
        let whose = (&self.caller, self.stored.len());
        let lifetimes = &proxy.session_lifetimes;
        lifetimes.end(&self.name, whose, (since_ms, lasts_ms), now_ms);
    }

    fn lasts(&self) -> Duration {
        Duration::from_millis(self.entry.lasts_ms)
    }

    /// Writes the session. False if the store has another value than the one that was read.
    async fn write(&mut self, proxy: &Arc<Proxy>) -> Result<bool, StoreError> {
        let text = text(&self.entry)?;
        let stands = std::mem::replace(&mut self.stored, text.clone());
        let lasts = self.lasts();
        proxy.kv.replace(self.name, stands, text, lasts).await
    }

    /// The name of another stored value that belongs to this session.
    pub(super) fn kv_name(&self, kind: Kind, parts: &[&str]) -> Name {
        name(kind, &self.caller, &self.id, parts)
    }
}

/// Removes a session that was not used on this replica, unless it was used on another one.
async fn make_room(proxy: &Proxy, unused: Name) -> Result<(), StoreError> {
    let stands = proxy.kv.find(unused).await?;
    let entry = stands.and_then(|stands| serde_json::from_slice::<SessionEntry>(&stands).ok());
    if entry.is_some_and(|entry| entry.lasts_ms == lifetimes::FRESH_MS) {
        // A first use between the read and this removal is lost: its client gets 404 and begins a new session.
        proxy.kv.remove(unused).await?;
    }
    Ok(())
}

fn text(entry: &SessionEntry) -> Result<Bytes, StoreError> {
    let text = serde_json::to_vec(entry);
    text.map(Bytes::from)
        .map_err(|_| StoreError::Corrupt("a session that cannot be written"))
}

fn name(kind: Kind, caller: &Caller, id: &str, parts: &[&str]) -> Name {
    let caller = Uuid::from_bytes(*caller.as_bytes()).to_string();
    let whole = [&["facade", &caller, id], parts].concat();
    Name::of(kind, &whole)
}
