//! Sessions at a legacy server, checked out by one call at a time.
//!
//! A session belongs to one caller with one set of capabilities: a question, an event id or a
//! late message on it has one possible call.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use hyper::header::HeaderValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::lock::Mutex;
use crate::mcp::envelope;
use crate::upstream::failures::{INVALID_WORDS, UNREACHABLE};
use crate::upstream::http::origin::{FIRST_WORDS, Origin};
use crate::upstream::initialize;
use crate::upstream::no_session::NoSession;
use crate::upstream::sessions::server_stream::OwnStream;
use crate::upstream::sessions::session::{Passport, ServerSession};
use crate::upstream::settings::SessionMode;

/// An unused session is given up after this.
const IDLE: Duration = Duration::from_mins(5);

/// Between looks at what is unused.
const ROUND: Duration = Duration::from_secs(30);

/// How long the server may take to end what is unused when raincheck stops.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// A session belongs to one caller with one set of capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::upstream) struct SessionKey {
    pub(in crate::upstream) caller: [u8; 16],
    /// What raincheck declares for the client, as JSON.
    pub(in crate::upstream) capabilities: Arc<str>,
}

#[derive(Debug)]
pub(in crate::upstream) struct SessionPool {
    origin: Arc<Origin>,
    mode: SessionMode,
    idle: Mutex<HashMap<SessionKey, Vec<IdleSession>>>,
    permits: Arc<Semaphore>,
    /// For a session to become free.
    wait: Duration,
    services: TaskTracker,
    /// Of each key, one shared session is opened at a time.
    opening: Mutex<HashMap<SessionKey, Weak<Semaphore>>>,
    _keeping: DropGuard,
}

#[derive(Debug)]
struct IdleSession {
    session: Arc<ServerSession>,
    since: Instant,
    permit: OwnedSemaphorePermit,
}

/// A session in use. Dropped without [`SessionLease::give_back`], it is closed: what its call left behind
/// must not meet another call.
#[derive(Debug)]
pub(in crate::upstream) struct SessionLease {
    pub(in crate::upstream) session: Arc<ServerSession>,
    key: SessionKey,
    sessions: Arc<SessionPool>,
    claim: SessionClaim,
}

/// What a lease holds of its session.
#[derive(Debug)]
enum SessionClaim {
    /// All of it.
    Own(OwnedSemaphorePermit),
    /// All of it, and it is closed after its call.
    Adopted,
    /// Other calls use it too.
    Shared,
    /// Nothing any more.
    Gone,
}

impl SessionPool {
    pub(in crate::upstream) fn new(
        origin: Arc<Origin>,
        mode: SessionMode,
        sessions_max: usize,
        wait: Duration,
        services: TaskTracker,
    ) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(sessions_max));
        let keeping = CancellationToken::new();
        let sessions = Arc::new(Self {
            origin,
            mode,
            idle: Mutex::default(),
            permits,
            wait,
            services,
            opening: Mutex::default(),
            _keeping: keeping.clone().drop_guard(),
        });
        let round = evict_idle(Arc::downgrade(&sessions));
        sessions
            .services
            .spawn(keeping.run_until_cancelled_owned(round));
        sessions
    }

    pub(in crate::upstream) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Ends what is unused at the server, which would remember it for long.
    pub(in crate::upstream) async fn stop(&self) {
        let idle = std::mem::take(&mut *self.idle());
        let unused = idle.into_values().flatten();
        let closing = unused.map(|kept| async move { kept.session.close().await });
        let _ = tokio::time::timeout(STOP_PATIENCE, join_all(closing)).await;
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<SessionKey, Vec<IdleSession>>> {
        self.idle.lock()
    }

    /// A session of that caller: the one used last, or a new one.
    pub(in crate::upstream) async fn check_out(
        self: &Arc<Self>,
        key: &SessionKey,
        credentials: Option<&HeaderValue>,
    ) -> Result<SessionLease, NoSession> {
        if let Some(lease) = self.take(key) {
            return Ok(lease);
        }
        // A shared session is opened by one of all who want it at the same time.
        if self.mode == SessionMode::Pool {
            return self.open(key, credentials).await;
        }
        let turn = self.turn(key);
        let _one = turn.acquire().await.ok();
        if let Some(lease) = self.take(key) {
            return Ok(lease);
        }
        self.open(key, credentials).await
    }

    /// The queue of callers that want a session of that key. Other keys have queues of their own.
    fn turn(&self, key: &SessionKey) -> Arc<Semaphore> {
        let mut opening = self.opening.lock();
        opening.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = opening.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Semaphore::new(1));
        opening.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }

    /// A session in place of one that was lost. A shared one is opened by one of all who lost it;
    /// what else is idle is of the same age, and may be lost as well.
    pub(in crate::upstream) async fn replace(
        self: &Arc<Self>,
        key: &SessionKey,
        credentials: Option<&HeaderValue>,
    ) -> Result<SessionLease, NoSession> {
        match self.mode {
            SessionMode::Caller => self.check_out(key, credentials).await,
            SessionMode::Pool => self.open(key, credentials).await,
        }
    }

    /// A new session, whatever is idle.
    pub(in crate::upstream) async fn open(
        self: &Arc<Self>,
        key: &SessionKey,
        credentials: Option<&HeaderValue>,
    ) -> Result<SessionLease, NoSession> {
        let free = Arc::clone(&self.permits).try_acquire_owned();
        let permit = match free {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => {
                self.close_oldest();
                let waiting = Arc::clone(&self.permits).acquire_owned();
                let waited = tokio::time::timeout(self.wait, waiting).await;
                waited.ok().and_then(Result::ok).ok_or(UNREACHABLE)?
            }
        };
        let opening = self.initialize(key, credentials);
        let session = tokio::time::timeout(FIRST_WORDS, opening)
            .await
            .map_err(|_| UNREACHABLE)??;
        let session = Arc::new(session.shared_by(self.mode == SessionMode::Caller));
        if self.mode == SessionMode::Caller {
            self.keep(key.clone(), Arc::clone(&session), permit);
            return Ok(SessionLease {
                session,
                key: key.clone(),
                sessions: Arc::clone(self),
                claim: SessionClaim::Shared,
            });
        }
        Ok(SessionLease {
            session,
            key: key.clone(),
            sessions: Arc::clone(self),
            claim: SessionClaim::Own(permit),
        })
    }

    fn take(self: &Arc<Self>, key: &SessionKey) -> Option<SessionLease> {
        let mut idle = self.idle();
        self.close_expired(&mut idle);
        let sessions = idle.get_mut(key)?;
        let (session, claim) = match self.mode {
            SessionMode::Pool => {
                let newest = sessions.pop()?;
                (newest.session, SessionClaim::Own(newest.permit))
            }
            SessionMode::Caller => {
                let shared = sessions.last_mut()?;
                shared.since = Instant::now();
                (Arc::clone(&shared.session), SessionClaim::Shared)
            }
        };
        if sessions.is_empty() {
            idle.remove(key);
        }
        Some(SessionLease {
            session,
            key: key.clone(),
            sessions: Arc::clone(self),
            claim,
        })
    }

    fn keep(&self, key: SessionKey, session: Arc<ServerSession>, permit: OwnedSemaphorePermit) {
        let mut idle = self.idle();
        idle.entry(key).or_default().push(IdleSession {
            session,
            since: Instant::now(),
            permit,
        });
    }

    fn forget(&self, key: &SessionKey, session: &Arc<ServerSession>) {
        let mut idle = self.idle();
        if let Some(sessions) = idle.get_mut(key) {
            sessions.retain(|kept| !Arc::ptr_eq(&kept.session, session));
        }
    }

    fn close_expired(&self, idle: &mut HashMap<SessionKey, Vec<IdleSession>>) {
        let now = Instant::now();
        idle.retain(|_, sessions| {
            sessions.retain(|kept| {
                let unused = Arc::strong_count(&kept.session) == 1;
                let expired = unused && now.saturating_duration_since(kept.since) >= IDLE;
                if expired {
                    self.close(Arc::clone(&kept.session));
                }
                !expired
            });
            !sessions.is_empty()
        });
    }

    /// Makes room for another caller's session.
    fn close_oldest(&self) {
        let mut idle = self.idle();
        let unused = |kept: &IdleSession| Arc::strong_count(&kept.session) == 1;
        let oldest = idle
            .iter()
            .filter_map(|(key, kept)| {
                kept.iter()
                    .filter(|k| unused(k))
                    .map(|k| k.since)
                    .min()
                    .map(|since| (since, key))
            })
            .min_by_key(|(since, _)| *since)
            .map(|(since, key)| (since, key.clone()));
        let Some((since, key)) = oldest else { return };
        if let Some(sessions) = idle.get_mut(&key)
            && let Some(at) = sessions
                .iter()
                .position(|kept| kept.since == since && unused(kept))
        {
            self.close(sessions.remove(at).session);
        }
    }

    fn close(&self, session: Arc<ServerSession>) {
        self.services.spawn(async move { session.close().await });
    }

    async fn initialize(
        &self,
        key: &SessionKey,
        credentials: Option<&HeaderValue>,
    ) -> Result<ServerSession, NoSession> {
        let initialized = initialize::post(&self.origin, credentials, &key.capabilities).await?;
        let session = ServerSession::begun(
            &self.origin,
            self.services.clone(),
            Arc::clone(&key.capabilities),
            initialized,
            credentials,
            Box::<OwnStream>::default(),
        )
        .ok_or(NoSession::Failed(INVALID_WORDS))?;
        let ready = envelope::notification("notifications/initialized", "{}");
        let told = session.tell(ready).await;
        told.map_err(|_| NoSession::Failed(INVALID_WORDS))?;
        Ok(session)
    }

    /// A client's own session, for a call of ours.
    pub(in crate::upstream) fn borrow(
        self: &Arc<Self>,
        session: Arc<ServerSession>,
    ) -> SessionLease {
        SessionLease {
            session,
            key: SessionKey {
                caller: [0; 16],
                capabilities: "{}".into(),
            },
            sessions: Arc::clone(self),
            claim: SessionClaim::Shared,
        }
    }

    /// A session that another process opened. Beyond the limit of sessions, because the server
    /// counts it already; its call is the last on it.
    pub(in crate::upstream) fn adopt(
        self: &Arc<Self>,
        key: SessionKey,
        passport: &Passport,
    ) -> Option<SessionLease> {
        let declared = Arc::clone(&key.capabilities);
        let session = ServerSession::carried_over(
            &self.origin,
            self.services.clone(),
            declared,
            passport,
            Box::<OwnStream>::default(),
        )?;
        Some(SessionLease {
            session: Arc::new(session),
            key,
            sessions: Arc::clone(self),
            claim: if passport.shared {
                SessionClaim::Shared
            } else {
                SessionClaim::Adopted
            },
        })
    }
}

/// Closes sessions that are unused for too long, also when no more calls come: the server need not
/// remember them, nor keep their streams open.
async fn evict_idle(sessions: Weak<SessionPool>) {
    let mut round = tokio::time::interval(ROUND);
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        round.tick().await;
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        sessions.close_expired(&mut sessions.idle());
    }
}

impl SessionLease {
    /// A lease for one more request of the same call. The session stays with this lease.
    pub(in crate::upstream) fn also(&self) -> Self {
        Self {
            session: Arc::clone(&self.session),
            key: self.key.clone(),
            sessions: Arc::clone(&self.sessions),
            claim: SessionClaim::Shared,
        }
    }

    /// The call has its answer: the session is free for the next one.
    pub(in crate::upstream) fn give_back(mut self) {
        match std::mem::replace(&mut self.claim, SessionClaim::Gone) {
            SessionClaim::Own(permit) => {
                self.sessions
                    .keep(self.key.clone(), Arc::clone(&self.session), permit);
            }
            SessionClaim::Adopted => self.sessions.close(Arc::clone(&self.session)),
            SessionClaim::Shared | SessionClaim::Gone => {}
        }
    }

    /// The server no longer knows this session.
    pub(in crate::upstream) fn lost(self) -> SessionKey {
        self.sessions.forget(&self.key, &self.session);
        self.key.clone()
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.claim, SessionClaim::Gone) {
            // The permit comes back at once: closing is no use of a session.
            SessionClaim::Own(_) | SessionClaim::Adopted => {
                self.sessions.close(Arc::clone(&self.session));
            }
            SessionClaim::Shared | SessionClaim::Gone => {}
        }
    }
}
