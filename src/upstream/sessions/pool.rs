//! The sessions of raincheck's own at a legacy server over Streamable HTTP.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::mcp::envelope;
use crate::mcp::error::Reason;
use crate::upstream::credentials::Credentials;
use crate::upstream::failures::{INVALID_WORDS, UNREACHABLE};
use crate::upstream::http::origin::{FIRST_WORDS, Origin};
use crate::upstream::initialize;
use crate::upstream::no_session::SessionError;
use crate::upstream::pool::{
    MayAsk, Placing, PoolKey, PoolLimits, Pooled, SessionPermit, SessionPool, Sharing, SlotUse,
    Started,
};
use crate::upstream::sessions::proof;
use crate::upstream::sessions::server_stream::OwnStream;
use crate::upstream::sessions::session::{ServerSession, SessionHandover};

/// Between looks at what is unused.
const ROUND: Duration = Duration::from_secs(30);

/// The time that the server may take to end unused sessions when raincheck stops.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// The sessions of raincheck's own at one server.
#[derive(Debug)]
pub(in crate::upstream) struct HttpSessionPool {
    starter: SessionStarter,
    sessions: Arc<SessionPool<ServerSession>>,
    _evicting: DropGuard,
}

/// The parts that are needed to start a session.
#[derive(Debug, Clone)]
struct SessionStarter {
    origin: Arc<Origin>,
    services: TaskTracker,
}

/// A session in use. A session that its call has to itself is closed when the lease is dropped without
/// [`SessionLease::give_back`]: what the call left behind must not meet another call.
#[derive(Debug)]
pub(in crate::upstream) struct SessionLease {
    pub(in crate::upstream) session: Arc<ServerSession>,
    pool: Arc<HttpSessionPool>,
    /// `None` for a session that is not of the pool.
    pooled: Option<Pooled<ServerSession>>,
    closes_session: bool,
}

impl HttpSessionPool {
    pub(in crate::upstream) fn new(
        origin: Arc<Origin>,
        limits: PoolLimits,
        services: TaskTracker,
    ) -> Arc<Self> {
        let evicting = CancellationToken::new();
        let sessions = Arc::new(SessionPool::new(limits, services.clone()));
        // The job holds the pool weakly, so that it ends with the pool.
        let eviction = evict_idle(Arc::downgrade(&sessions));
        services.spawn(evicting.clone().run_until_cancelled_owned(eviction));
        Arc::new(Self {
            starter: SessionStarter { origin, services },
            sessions,
            _evicting: evicting.drop_guard(),
        })
    }

    pub(in crate::upstream) fn origin(&self) -> &Arc<Origin> {
        &self.starter.origin
    }

    /// Ends sessions at the server, which would otherwise remember them for long.
    pub(in crate::upstream) async fn stop(&self) {
        let sessions = self.sessions.take_all();
        let closing = sessions
            .iter()
            .map(|session| async { session.close().await });
        let _ = tokio::time::timeout(STOP_PATIENCE, join_all(closing)).await;
    }

    /// A session of that key: an unused or shared one, or a new one. A session on which a request failed is given only
    /// with proof that the server still has it.
    pub(in crate::upstream) async fn check_out(
        self: &Arc<Self>,
        key: &PoolKey,
        credentials: Option<&Credentials>,
    ) -> Result<SessionLease, SessionError> {
        loop {
            let start = self.start(key, credentials);
            let pooled = self
                .sessions
                .get(
                    key,
                    MayAsk::Maybe,
                    false,
                    SessionPool::close_longest_unused,
                    start,
                )
                .await?;
            pooled.session.renew(credentials);
            let lease = self.lease(pooled);
            if proof::is_usable(&lease.session).await {
                return Ok(lease);
            }
            if self.is_exclusive() {
                return self.restart(Some(lease), key, credentials).await;
            }
            // A shared session is replaced through the pool, so that all calls that lost it together get the same new
            // one.
            lease.forget();
        }
    }

    /// The right to use a session of that key, or a position among those that wait for it.
    pub(in crate::upstream) fn place(&self, key: &PoolKey) -> Placing<ServerSession> {
        let make_room = SessionPool::close_longest_unused;
        self.sessions.place(key, MayAsk::Maybe, false, make_room)
    }

    /// The session of that place.
    pub(in crate::upstream) async fn check_out_at(
        self: &Arc<Self>,
        slot: SlotUse<ServerSession>,
        credentials: Option<&Credentials>,
    ) -> Result<SessionLease, SessionError> {
        let key = slot.key().clone();
        let start = self.start(&key, credentials);
        let pooled = self.sessions.start_in(slot, start).await?;
        pooled.session.renew(credentials);
        let lease = self.lease(pooled);
        if proof::is_usable(&lease.session).await {
            return Ok(lease);
        }
        self.replace(Some(lease), &key, credentials).await
    }

    /// Returns `true` if the caller has a session, or one is being started for it.
    pub(in crate::upstream) fn has_any_of(&self, caller: [u8; 16]) -> bool {
        self.sessions.has_any_of(caller)
    }

    /// A session in place of one that the server does not know any more. Where calls do not share sessions, it is a
    /// new one: sessions that are unused are as old, and may be lost as well. The call that has its turn keeps it.
    pub(in crate::upstream) async fn replace(
        self: &Arc<Self>,
        lost: Option<SessionLease>,
        key: &PoolKey,
        credentials: Option<&Credentials>,
    ) -> Result<SessionLease, SessionError> {
        if self.is_exclusive() {
            return self.restart(lost, key, credentials).await;
        }
        if let Some(lost) = lost {
            lost.forget();
        }
        self.check_out(key, credentials).await
    }

    async fn restart(
        self: &Arc<Self>,
        mut lost: Option<SessionLease>,
        key: &PoolKey,
        credentials: Option<&Credentials>,
    ) -> Result<SessionLease, SessionError> {
        // Taken out of the lease, whose drop would give the place to another call.
        let pooled = lost.as_mut().and_then(|lost| lost.pooled.take());
        let start = self.start(key, credentials);
        let started = match pooled {
            Some(pooled) => self.sessions.restart(pooled, start).await,
            None => self.sessions.start(key, start).await,
        };
        Ok(self.lease(started?))
    }

    /// A new session, even if a session in the pool is unused.
    pub(in crate::upstream) async fn open(
        self: &Arc<Self>,
        key: &PoolKey,
        credentials: Option<&Credentials>,
    ) -> Result<SessionLease, SessionError> {
        let start = self.start(key, credentials);
        Ok(self.lease(self.sessions.start(key, start).await?))
    }

    fn is_exclusive(&self) -> bool {
        self.sessions.sharing() == Sharing::Never
    }

    fn lease(self: &Arc<Self>, pooled: Pooled<ServerSession>) -> SessionLease {
        SessionLease {
            session: Arc::clone(&pooled.session),
            pool: Arc::clone(self),
            pooled: Some(pooled),
            closes_session: self.is_exclusive(),
        }
    }

    /// Returns the function with which the pool starts a session.
    fn start(
        &self,
        key: &PoolKey,
        credentials: Option<&Credentials>,
    ) -> impl FnOnce(Option<SessionPermit>) -> Starting + Send + 'static {
        let (starter, sessions) = (self.starter.clone(), Arc::clone(&self.sessions));
        let (key, credentials) = (key.clone(), credentials.cloned());
        let is_shared = !self.is_exclusive();
        move |permit| {
            Box::pin(async move {
                let permit = if let Some(permit) = permit {
                    permit
                } else {
                    let make_room = SessionPool::close_longest_unused;
                    sessions.permit(Some(key.caller), make_room).await?
                };
                let initializing = starter.initialize(&key, credentials.as_ref());
                let session = tokio::time::timeout(FIRST_WORDS, initializing).await;
                let session = session.map_err(|_| UNREACHABLE)??;
                Ok(Started {
                    session: Arc::new(session.shared_by(is_shared)),
                    permit: Some(permit),
                })
            })
        }
    }

    /// A lease of a client's own session, for a call of raincheck's.
    pub(in crate::upstream) fn borrow(
        self: &Arc<Self>,
        session: Arc<ServerSession>,
    ) -> SessionLease {
        SessionLease {
            session,
            pool: Arc::clone(self),
            pooled: None,
            // The session is the client's own: only its DELETE ends it at the server.
            closes_session: false,
        }
    }

    /// A session that another process opened. The limit of sessions does not count it, because the server
    /// does already. Unless it is shared, its call is the last on it.
    pub(in crate::upstream) fn adopt(
        self: &Arc<Self>,
        key: &PoolKey,
        handover: &SessionHandover,
        credentials: Option<&Credentials>,
    ) -> Option<SessionLease> {
        let session = ServerSession::carried_over(
            &self.starter.origin,
            self.starter.services.clone(),
            Arc::clone(&key.declared),
            (handover, credentials),
            Box::<OwnStream>::default(),
        )?;
        Some(SessionLease {
            session: Arc::new(session),
            pool: Arc::clone(self),
            pooled: None,
            closes_session: !handover.shared,
        })
    }
}

/// A session that is being started.
type Starting =
    std::pin::Pin<Box<dyn Future<Output = Result<Started<ServerSession>, SessionError>> + Send>>;

impl SessionStarter {
    async fn initialize(
        &self,
        key: &PoolKey,
        credentials: Option<&Credentials>,
    ) -> Result<ServerSession, SessionError> {
        let initialized = initialize::post(&self.origin, credentials, &key.declared).await?;
        let session = ServerSession::begun(
            &self.origin,
            self.services.clone(),
            Arc::clone(&key.declared),
            initialized,
            credentials,
            Box::<OwnStream>::default(),
        )
        .ok_or(SessionError::Failed(INVALID_WORDS))?;
        let ready = envelope::notification("notifications/initialized", "{}");
        match session.tell(ready).await {
            Ok(()) => Ok(session),
            // The server may answer calls all the same.
            Err(failure) if failure.reason == Reason::UpstreamHttp => {
                tracing::debug!("the server refused notifications/initialized");
                Ok(session)
            }
            Err(_) => Err(SessionError::Failed(INVALID_WORDS)),
        }
    }
}

/// Closes sessions that are unused for too long, also when no more calls come: the server need not
/// remember them, nor keep their streams open.
async fn evict_idle(sessions: Weak<SessionPool<ServerSession>>) {
    let mut round = tokio::time::interval(ROUND);
    // Otherwise a process that was suspended would look many times in a row.
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        round.tick().await;
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        sessions.close_idle();
    }
}

impl SessionLease {
    /// A lease for one more request of the same call. The session stays with this lease.
    pub(in crate::upstream) fn also(&self) -> Self {
        Self {
            session: Arc::clone(&self.session),
            pool: Arc::clone(&self.pool),
            pooled: self.pooled.as_ref().map(Pooled::also),
            closes_session: false,
        }
    }

    /// The call has its answer: a session of the pool is free for the next call.
    pub(in crate::upstream) fn give_back(mut self) {
        // A session without a place in the pool has no next call, so it is closed all the same.
        self.closes_session &= self.pooled.is_none();
    }

    fn forget(&self) {
        if let Some(pooled) = &self.pooled {
            self.pool.sessions.forget(pooled);
        }
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        if self.closes_session {
            // The permit comes back at once: closing is no use of a session.
            self.forget();
            self.session.close_soon();
        }
    }
}
