//! Sessions at the server that calls share: over Streamable HTTP, and over lines. The pool starts a session when
//! a call needs one, bounds how many there are, and ends those that are unused.
//!
//! A session belongs to one caller with one set of capabilities. Which call gets which session is in [`rule`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::base::account::Account;
use crate::base::lock::Mutex;
use crate::mcp::error::Failure;
use crate::upstream::failures::{IN_USE, UNREACHABLE};
use crate::upstream::no_session::SessionError;

mod kept;
mod key;
mod permits;
mod rule;
mod slot;
#[cfg(test)]
mod tests;
mod waiting;

use crate::upstream::pool::kept::{KeptSessions, PoolChoice};
pub(in crate::upstream) use crate::upstream::pool::key::PoolKey;
use crate::upstream::pool::permits::{Granted, PoolPermits};
pub(in crate::upstream) use crate::upstream::pool::permits::{PoolLimits, SessionPermit, UsedUp};
pub(in crate::upstream) use crate::upstream::pool::rule::{MayAsk, Questions, Sharing};
pub(in crate::upstream) use crate::upstream::pool::slot::{Pooled, PooledSession, SlotUse};
use crate::upstream::pool::waiting::WantedSession;

/// An unused session is ended after this.
pub(in crate::upstream) const IDLE: Duration = Duration::from_mins(5);

/// A session that was started, and the permit for it unless the session keeps that itself.
pub(in crate::upstream) struct Started<S> {
    pub(in crate::upstream) session: Arc<S>,
    pub(in crate::upstream) permit: Option<SessionPermit>,
}

/// The sessions at one server.
#[derive(Debug)]
pub(in crate::upstream) struct SessionPool<S: PooledSession> {
    kept: Arc<Mutex<KeptSessions<S>>>,
    /// One for each session, of whatever kind: those outside of the pool, too.
    permits: Arc<PoolPermits<SlotUse<S>>>,
    limits: PoolLimits,
    services: TaskTracker,
}

impl<S: PooledSession> SessionPool<S> {
    pub(in crate::upstream) fn new(limits: PoolLimits, services: TaskTracker) -> Self {
        let permits = PoolPermits::new(limits);
        Self {
            kept: KeptSessions::new(limits.sharing, &permits),
            permits,
            limits,
            services,
        }
    }

    pub(in crate::upstream) fn sharing(&self) -> Sharing {
        self.limits.sharing
    }

    /// The right to use a session of that key, which may have to be started. When all sessions are in use, `make_room`
    /// ends what can be spared, and the request waits for its turn. Nothing is sent to the server.
    ///
    /// `has_spare`: [`Self::start_in`] needs no permit, because something that holds one is about to become a session.
    pub(in crate::upstream) fn place(
        self: &Arc<Self>,
        key: &PoolKey,
        asks: MayAsk,
        has_spare: bool,
        make_room: impl FnOnce(&Self, UsedUp) -> bool,
    ) -> Placing<S> {
        let choice = self.kept.lock().choose(key, asks, has_spare);
        match choice {
            PoolChoice::Slot(slot) => Placing::Now(slot),
            PoolChoice::Nothing(used_up) => {
                let wanted = Some((key.clone(), asks));
                Placing::Waits(self.line_up(wanted, Some(key.account()), used_up, make_room))
            }
        }
    }

    /// A session of that key, started by one of all who want it. It may have ended by the time it is used. Dropped
    /// before it resolves, a start goes on, and the next call may have the session. See [`Self::place`].
    pub(in crate::upstream) async fn get<F>(
        self: &Arc<Self>,
        key: &PoolKey,
        asks: MayAsk,
        has_spare: bool,
        make_room: impl FnOnce(&Self, UsedUp) -> bool,
        start: impl FnOnce(Option<SessionPermit>) -> F + Send + 'static,
    ) -> Result<Pooled<S>, SessionError>
    where
        F: Future<Output = Result<Started<S>, SessionError>> + Send + 'static,
    {
        let slot = match self.place(key, asks, has_spare, make_room) {
            Placing::Now(slot) => slot,
            Placing::Waits(mut wait) => self.in_time(wait.used_up, wait.slot()).await?,
        };
        self.start_in(slot, start).await
    }

    /// A new session, even if a session in the pool is unused.
    pub(in crate::upstream) async fn start<F>(
        self: &Arc<Self>,
        key: &PoolKey,
        start: impl FnOnce(Option<SessionPermit>) -> F + Send + 'static,
    ) -> Result<Pooled<S>, SessionError>
    where
        F: Future<Output = Result<Started<S>, SessionError>> + Send + 'static,
    {
        let permit = self.permit(Some(key.caller), Self::close_longest_unused);
        let permit = permit.await?;
        let slot = self.kept.lock().add(key, MayAsk::Maybe, Some(permit));
        self.start_in(slot, start).await
    }

    /// A new session in place of one that the server has lost: the request that has its turn keeps it.
    pub(in crate::upstream) async fn restart<F>(
        self: &Arc<Self>,
        lost: Pooled<S>,
        start: impl FnOnce(Option<SessionPermit>) -> F + Send + 'static,
    ) -> Result<Pooled<S>, SessionError>
    where
        F: Future<Output = Result<Started<S>, SessionError>> + Send + 'static,
    {
        let (key, asks) = (lost.slot.slot.key.clone(), MayAsk::Maybe);
        // Taken first, because `forget` would give it to a request that waits.
        let permit = lost.slot.slot.permit.lock().take();
        self.forget(&lost);
        drop(lost);
        match permit {
            Some(permit) => {
                let slot = self.kept.lock().add(&key, asks, Some(permit));
                self.start_in(slot, start).await
            }
            // Another call has restarted it.
            None => self.start(&key, start).await,
        }
    }

    /// Lines up for a session that fits, if one is wanted, or for the right to start one.
    fn line_up(
        self: &Arc<Self>,
        session: Option<(PoolKey, MayAsk)>,
        account: Option<Account>,
        used_up: UsedUp,
        make_room: impl FnOnce(&Self, UsedUp) -> bool,
    ) -> PoolWait<S> {
        let wanted = WantedSession {
            session: session.clone(),
            is_helped: false,
        };
        let (number, granted) = self.permits.line_up(account, wanted);
        let wait = PoolWait {
            pool: Arc::clone(self),
            session,
            account,
            number,
            used_up,
            granted,
        };
        // Only now: what is ended goes to the request whose turn it is.
        if make_room(self, used_up) {
            self.permits.help(account, number);
        }
        wait
    }

    /// Ends what can be spared by now, for requests that wait.
    pub(in crate::upstream) fn make_room(&self, make_room: impl Fn(UsedUp) -> bool) {
        while let Some((account, number, used_up)) = self.permits.first_unhelped()
            && make_room(used_up)
        {
            self.permits.help(account, number);
        }
    }

    /// Returns the result that a request waits for, if it comes in the time that a request without a task may wait.
    async fn in_time<T>(
        &self,
        used_up: UsedUp,
        waiting: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let in_time = timeout(self.limits.wait, waiting).await;
        in_time.unwrap_or_else(|_elapsed| {
            self.permits.refused(used_up);
            Err(IN_USE)
        })
    }

    /// The session of that place, which is started if it is not there yet.
    pub(in crate::upstream) async fn start_in<F>(
        self: &Arc<Self>,
        slot: SlotUse<S>,
        start: impl FnOnce(Option<SessionPermit>) -> F + Send + 'static,
    ) -> Result<Pooled<S>, SessionError>
    where
        F: Future<Output = Result<Started<S>, SessionError>> + Send + 'static,
    {
        if let Some(session) = slot.slot.session.get() {
            let session = Arc::clone(session);
            return Ok(Pooled { session, slot });
        }
        // Set before the job runs: a caller that leaves in between must not free this place, in which a session is
        // about to be started.
        slot.slot.is_begun.store(true, Ordering::Relaxed);
        let (kept, place) = (Arc::clone(&self.kept), Arc::clone(&slot.slot));
        // A job, because other requests may wait for this start when the caller that began it leaves.
        let starting = self.services.spawn(async move {
            let start = || async {
                // `get_or_try_init` lets each waiter try again, one after the other, so a failure is kept for all.
                if let Some(failure) = place.failure.get() {
                    return Err(SessionError::Failed(failure.clone()));
                }
                let permit = place.permit.lock().take();
                let started = Box::pin(start(permit)).await.inspect_err(|why| {
                    if let SessionError::Failed(failure) = why {
                        place.failure.get_or_init(|| failure.clone());
                    }
                })?;
                *place.permit.lock() = started.permit;
                Ok::<_, SessionError>(started.session)
            };
            let started = place.session.get_or_try_init(start).await.cloned();
            let left = kept.lock().keep_or_forget(&place);
            // Without the lock, which dropping takes again.
            drop(left);
            started
        });
        let session = starting
            .await
            .map_err(|_| SessionError::Failed(UNREACHABLE))??;
        Ok(Pooled { session, slot })
    }

    /// Gives the session to no other call. Its permit comes back at once, even if a call still uses the session.
    pub(in crate::upstream) fn forget(&self, pooled: &Pooled<S>) {
        self.kept.lock().forget(&pooled.slot.slot);
    }

    /// Returns `true` if the caller has a session, or one is being started for it.
    pub(in crate::upstream) fn has_any_of(&self, caller: [u8; 16]) -> bool {
        self.kept.lock().has_any_of(caller)
    }

    /// An open session of that caller, whatever was declared on it.
    pub(in crate::upstream) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<S>> {
        self.kept.lock().any_of(caller)
    }

    /// The right to one more session of that caller, or of none. When none is free, `make_room` ends what can be
    /// spared, and the right is waited for.
    pub(in crate::upstream) async fn permit(
        self: &Arc<Self>,
        caller: Option<[u8; 16]>,
        make_room: impl FnOnce(&Self, UsedUp) -> bool,
    ) -> Result<SessionPermit, Failure> {
        let account = caller.map(Account::of);
        let used_up = match self.permits.try_take(account) {
            Ok(permit) => return Ok(permit),
            Err(used_up) => used_up,
        };
        let mut wait = self.line_up(None, account, used_up, make_room);
        self.in_time(used_up, wait.permit()).await
    }

    /// Ends the session that has been unused for longest, if its permit helps the request. False: all such
    /// sessions are in use.
    pub(in crate::upstream) fn close_longest_unused(&self, used_up: UsedUp) -> bool {
        self.kept.lock().close_longest_unused(used_up)
    }

    /// Ends sessions that were unused for [`IDLE`], and forgets those that have ended.
    pub(in crate::upstream) fn close_idle(&self) {
        let now = Instant::now();
        let is_idle = |since| now.saturating_duration_since(since) >= IDLE;
        self.kept.lock().retain(|slot| {
            if let Some((since, session)) = slot.unused()
                && is_idle(since)
            {
                session.close_unused();
            }
            !slot.is_over()
        });
    }

    /// Takes all sessions out of the pool, except those that one call has to itself.
    pub(in crate::upstream) fn take_all(&self) -> Vec<Arc<S>> {
        let is_exclusive = self.limits.sharing == Sharing::Never;
        let mut taken = Vec::new();
        self.kept.lock().retain(|slot| {
            let is_taken = !is_exclusive || slot.state().users == 0;
            if is_taken {
                taken.extend(slot.session.get().cloned());
            }
            !is_taken
        });
        taken
    }

    /// Waits until nothing is left of any session, for a bounded time. None is started afterwards.
    pub(in crate::upstream) async fn ended(&self, patience: Duration) {
        self.permits.close(patience).await;
    }
}

/// The place of a request.
pub(in crate::upstream) enum Placing<S: PooledSession> {
    Now(SlotUse<S>),
    Waits(PoolWait<S>),
}

/// A request that waits for its turn. Dropped, it leaves the queue.
#[derive(Debug)]
pub(in crate::upstream) struct PoolWait<S: PooledSession> {
    pool: Arc<SessionPool<S>>,
    /// `None`: only a permit is wanted.
    session: Option<(PoolKey, MayAsk)>,
    account: Option<Account>,
    number: u64,
    used_up: UsedUp,
    granted: oneshot::Receiver<Granted<SlotUse<S>>>,
}

impl<S: PooledSession> PoolWait<S> {
    /// Waits for the turn. Cancel safe: dropped before it resolves, the place in the queue stays.
    pub(in crate::upstream) async fn slot(&mut self) -> Result<SlotUse<S>, Failure> {
        match (self.granted().await?, &self.session) {
            (Granted::Slot(slot), _) => Ok(slot),
            (Granted::Permit(permit), Some((key, asks))) => {
                // `_left` is dropped after the guard of this statement, because dropping takes the lock again.
                let (slot, _left) = self.pool.kept.lock().enter(key, *asks, permit);
                Ok(slot)
            }
            (Granted::Permit(_), None) => Err(UNREACHABLE),
        }
    }

    async fn permit(&mut self) -> Result<SessionPermit, Failure> {
        match self.granted().await? {
            Granted::Permit(permit) => Ok(permit),
            // Only a request that wants a session gets one.
            Granted::Slot(_) => Err(UNREACHABLE),
        }
    }

    /// `Err`: the pool is closed.
    async fn granted(&mut self) -> Result<Granted<SlotUse<S>>, Failure> {
        (&mut self.granted).await.map_err(|_closed| UNREACHABLE)
    }

    /// Returns the number of requests that have their turn before this one.
    pub(in crate::upstream) fn ahead(&self) -> usize {
        self.pool.permits.ahead(self.account, self.number)
    }
}

impl<S: PooledSession> Drop for PoolWait<S> {
    fn drop(&mut self) {
        // A grant that is on its way is dropped with the receiver, and goes to the next request.
        self.pool.permits.leave(self.account, self.number);
    }
}
