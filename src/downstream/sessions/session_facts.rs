//! Facts about the sessions at the server, each read from the `initialize` that began the session.
//!
//! The replica that passed the `initialize` remembers the fact, and passes it to the others by a value in the store.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::base::lock::Mutex;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::store::StoreError;
use crate::store::key_value::KeyValue;
use crate::store::kv::{Kind, Name};
use crate::store::quota::{Allowance, Quotas};
use crate::upstream::client_session::newest::NewestSessions;

/// The time that a request waits for the store. Without the value there is no fact.
const PATIENCE: Duration = Duration::from_millis(250);

/// The time that a session counts as one without a fact after the store had no value.
const ASKED_AGAIN: Duration = Duration::from_secs(10);

/// The values of one caller that one process writes. Beyond them, the other replicas do without the fact.
const OF_CALLER_MAX: u64 = 5_000;

/// A fact about a session, and its form in the store.
pub trait SessionFact: Copy + PartialEq {
    /// The fact about an id that the server gave with several facts. `None`: the newest fact holds.
    const SEVERAL: Option<Self>;
    /// The part of a value's name before the session.
    const NAMED: &'static [&'static str];
    /// The time that the other replicas can find the fact, from the begin of the session.
    const LIFETIME_MS: u64;
    /// The values of all callers that one process writes.
    const VALUES_MAX: u64;

    /// Returns the value for the other replicas. `None`: it would make no difference to them.
    fn value(self) -> Option<Bytes>;

    /// Reads a value. `None`: it cannot be read.
    fn read(value: &[u8]) -> Option<Self>;
}

/// The facts of one kind about the newest sessions.
#[derive(Debug)]
pub struct SessionFacts<F> {
    newest: Mutex<NewestSessions<SessionKey, RememberedFact<F>>>,
    /// The values that this process wrote.
    written: Quotas,
    kv: KeyValue,
    /// The removals on their way.
    removing: TaskTracker,
}

#[derive(Debug, Clone, Copy)]
struct RememberedFact<F> {
    /// `None`: the store had no value.
    fact: Option<F>,
    since: Instant,
    /// The expiry of the value that this process wrote and counted.
    counted_until_ms: Option<u64>,
}

impl<F> RememberedFact<F> {
    fn new(fact: Option<F>, counted_until_ms: Option<u64>) -> Self {
        Self {
            fact,
            since: Instant::now(),
            counted_until_ms,
        }
    }
}

impl<F: SessionFact> SessionFacts<F> {
    /// `removing`: a drain waits for the jobs in it.
    pub fn new(kv: &KeyValue, removing: &TaskTracker) -> Self {
        let most = |entries| Allowance {
            entries,
            ..Allowance::ANY
        };
        Self {
            newest: Mutex::default(),
            written: Quotas::new(most(OF_CALLER_MAX), most(F::VALUES_MAX)),
            kv: kv.clone(),
            removing: removing.clone(),
        }
    }

    /// Returns the fact that is remembered, if it is enough, or else the fact in the store, if there is one.
    pub(super) async fn find(
        &self,
        session: SessionKey,
        is_enough: impl FnOnce(F) -> bool,
    ) -> Option<F> {
        let known = self.newest.lock().find(&session);
        if let Some(known) = &known {
            let age = Instant::now().saturating_duration_since(known.since);
            let is_new = || age < ASKED_AGAIN;
            if known.fact.map_or_else(is_new, is_enough) {
                return known.fact;
            }
        }
        let stored = timeout(PATIENCE, self.kv.find(name::<F>(session))).await;
        let stored = stored.ok().and_then(Result::ok).flatten();
        let stored = stored.and_then(|value| F::read(&value));
        let fact = stored.or_else(|| known.and_then(|known| known.fact));
        // A store that did not answer counts as one without a value, so that it does not delay each request.
        let counted_until_ms = known.and_then(|known| known.counted_until_ms);
        let known = RememberedFact::new(fact, counted_until_ms);
        self.newest.lock().remember(session, known);
        fact
    }

    /// Remembers the fact about a session that the server has agreed to, and writes it for the other replicas.
    pub(super) async fn begin(&self, by: &Requester, session: SessionKey, fact: F) {
        // The client of a pipe never comes to another replica, so it needs no value.
        let is_shared = !by.is_piped && fact.value().is_some();
        let now_ms = self.kv.now_ms();
        let expires_ms = now_ms.saturating_add(F::LIFETIME_MS);
        let enter = || self.written.enter(by.caller, 0, expires_ms, now_ms);
        let counted_until_ms = (is_shared && enter().is_ok()).then_some(expires_ms);
        let fact = {
            let mut newest = self.newest.lock();
            let before = newest.find(&session).and_then(|known| known.fact);
            let differs = before.is_some_and(|before| before != fact);
            let fact = F::SEVERAL.filter(|_| differs).unwrap_or(fact);
            newest.remember(session, RememberedFact::new(Some(fact), counted_until_ms));
            fact
        };
        if !is_shared {
            return;
        }
        let sharing = self.share(session, fact, counted_until_ms.is_some());
        // Not an error of the request: this replica has the fact, and the others do without it.
        if !matches!(timeout(PATIENCE, sharing).await, Ok(Ok(()))) {
            let fact = std::any::type_name::<F>();
            tracing::debug!(fact, "cannot share a fact about a session");
        }
    }

    /// Writes the fact for the other replicas. `may_write`: this process may write one more value.
    async fn share(&self, session: SessionKey, fact: F, may_write: bool) -> Result<(), StoreError> {
        let (name, lifetime) = (name::<F>(session), Duration::from_millis(F::LIFETIME_MS));
        let mut value = fact.value().unwrap_or_default();
        match F::SEVERAL {
            // Another replica may have passed the id with another fact, at the same time.
            Some(several) if several != fact => {
                let before = if may_write {
                    self.kv.claim(name, value.clone(), lifetime).await?
                } else {
                    self.kv.find(name).await?
                };
                if before.is_none_or(|before| before == value) {
                    return Ok(());
                }
                let known = RememberedFact::new(Some(several), None);
                self.newest.lock().remember(session, known);
                value = several.value().unwrap_or_default();
            }
            None if !may_write => return Ok(()),
            Some(_) | None => {}
        }
        self.kv.put(name, value, lifetime).await
    }

    /// Forgets a session that its client ends. The client does not wait for the removal of the value.
    pub(super) fn end(&self, by: &Requester, session: Option<SessionKey>) {
        let Some(session) = session else { return };
        let Some(known) = self.newest.lock().forget(&session) else {
            return;
        };
        // The fact about an id that was given with several facts holds for the sessions that go on.
        let has_value = |fact: &F| fact.value().is_some() && F::SEVERAL != Some(*fact);
        if !known.fact.as_ref().is_some_and(has_value) {
            return;
        }
        if let Some(expires_ms) = known.counted_until_ms {
            let now_ms = self.kv.now_ms();
            self.written.leave(&by.caller, 0, expires_ms, now_ms);
        }
        let kv = self.kv.clone();
        self.removing.spawn(async move {
            // Otherwise the value expires.
            let _ = timeout(PATIENCE, kv.remove(name::<F>(session))).await;
        });
    }
}

fn name<F: SessionFact>(session: SessionKey) -> Name {
    let session = Uuid::from_bytes(*session.as_bytes()).to_string();
    Name::of(Kind::Client, &[F::NAMED, &[&session]].concat())
}
