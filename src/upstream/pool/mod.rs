//! Sessions at the server that calls share: over Streamable HTTP, and over lines. The pool starts a session when
//! a call needs one, bounds how many there are, and ends those that are unused.
//!
//! A session belongs to one caller with one set of capabilities. Which call gets which session is in [`rule`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::lock::Mutex;
use crate::mcp::error::Failure;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::no_session::NoSession;

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
use crate::upstream::pool::permits::PoolPermits;
pub(in crate::upstream) use crate::upstream::pool::permits::{PoolLimits, SessionPermit, UsedUp};
pub(in crate::upstream) use crate::upstream::pool::rule::{MayAsk, Questions, Sharing};
use crate::upstream::pool::slot::SlotUse;
pub(in crate::upstream) use crate::upstream::pool::slot::{Held, PooledSession};
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
    permits: PoolPermits,
    limits: PoolLimits,
    services: TaskTracker,
}

impl<S: PooledSession> SessionPool<S> {
    pub(in crate::upstream) fn new(limits: PoolLimits, services: TaskTracker) -> Self {
        Self {
            kept: KeptSessions::new(limits.sharing),
            permits: PoolPermits::new(limits),
            limits,
            services,
        }
    }

    pub(in crate::upstream) fn sharing(&self) -> Sharing {
        self.limits.sharing
    }

    /// A session of that key, started by one of all who want it. It may have ended by the time it is used. When all
    /// sessions are in use, `make_room` ends what can be spared, and the request waits for a session of its key or
    /// the right to start one. Dropped before it resolves, a start goes on, and the next call may have the session.
    ///
    /// `has_spare`: `start` needs no permit, because something that holds one is about to become a session.
    pub(in crate::upstream) async fn get<F>(
        self: &Arc<Self>,
        key: &PoolKey,
        asks: MayAsk,
        has_spare: bool,
        make_room: impl FnOnce(&Self, UsedUp) -> bool,
        start: impl FnOnce(Option<SessionPermit>) -> F + Send + 'static,
    ) -> Result<Held<S>, NoSession>
    where
        F: Future<Output = Result<Started<S>, NoSession>> + Send + 'static,
    {
        let choice = self.kept.lock().choose(key, asks, has_spare, &self.permits);
        let slot = match choice {
            PoolChoice::Slot(slot) => slot,
            PoolChoice::Nothing(used_up) => {
                let wanted = Some((key.clone(), asks));
                match self.wait(wanted, key.caller, used_up, make_room).await? {
                    Got::Slot(slot) => slot,
                    Got::Permit(permit) => self.kept.lock().add(key, asks, Some(permit)),
                }
            }
        };
        self.start_in(slot, start).await
    }

    /// A new session, even if a session in the pool is unused.
    pub(in crate::upstream) async fn start<F>(
        self: &Arc<Self>,
        key: &PoolKey,
        start: impl FnOnce(Option<SessionPermit>) -> F + Send + 'static,
    ) -> Result<Held<S>, NoSession>
    where
        F: Future<Output = Result<Started<S>, NoSession>> + Send + 'static,
    {
        let permit = self.permit(Some(key.caller), Self::close_longest_unused);
        let permit = permit.await?;
        let slot = self.kept.lock().add(key, MayAsk::Maybe, Some(permit));
        self.start_in(slot, start).await
    }

    /// Waits for a session that fits, if one is wanted, or for the right to start one.
    async fn wait(
        &self,
        session: Option<(PoolKey, MayAsk)>,
        caller: impl Into<Option<[u8; 16]>>,
        used_up: UsedUp,
        make_room: impl FnOnce(&Self, UsedUp) -> bool,
    ) -> Result<Got<S>, Failure> {
        let is_helped = make_room(self, used_up);
        let wanted = WantedSession {
            session,
            used_up,
            is_helped,
        };
        let freed = self.kept.lock().wait(wanted);
        let either = async {
            tokio::select! {
                biased;
                Ok(slot) = freed => Ok(Got::Slot(slot)),
                permit = self.permits.wait(caller.into()) => {
                    permit.map(Got::Permit).map_err(|_| UNREACHABLE)
                }
            }
        };
        let in_time = timeout(self.limits.wait, either).await;
        in_time.unwrap_or_else(|_elapsed| {
            self.permits.refused(used_up);
            Err(UNREACHABLE)
        })
    }

    async fn start_in<F>(
        self: &Arc<Self>,
        slot: SlotUse<S>,
        start: impl FnOnce(Option<SessionPermit>) -> F + Send + 'static,
    ) -> Result<Held<S>, NoSession>
    where
        F: Future<Output = Result<Started<S>, NoSession>> + Send + 'static,
    {
        if let Some(session) = slot.slot.session.get() {
            let session = Arc::clone(session);
            return Ok(Held { session, slot });
        }
        let (kept, place) = (Arc::clone(&self.kept), Arc::clone(&slot.slot));
        let starting = self.services.spawn(async move {
            let start = || async {
                let permit = place.permit.lock().take();
                let started = Box::pin(start(permit)).await?;
                *place.permit.lock() = started.permit;
                Ok::<_, NoSession>(started.session)
            };
            let started = place.session.get_or_try_init(start).await.cloned();
            kept.lock().keep_or_forget(&place);
            started
        });
        let session = starting
            .await
            .map_err(|_| NoSession::Failed(UNREACHABLE))??;
        Ok(Held { session, slot })
    }

    /// Gives the session to no other call. Its permit comes back at once, even if a call still uses the session.
    pub(in crate::upstream) fn forget(&self, held: &Held<S>) {
        self.kept.lock().forget(&held.slot.slot);
    }

    /// Whether the caller has a session, or one is being started for it.
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
        &self,
        caller: Option<[u8; 16]>,
        make_room: impl FnOnce(&Self, UsedUp) -> bool,
    ) -> Result<SessionPermit, Failure> {
        let used_up = match self.permits.try_take(caller) {
            Ok(permit) => return Ok(permit),
            Err(used_up) => used_up,
        };
        match self.wait(None, caller, used_up, make_room).await? {
            Got::Permit(permit) => Ok(permit),
            // Only a request that wants a session gets one.
            Got::Slot(_) => Err(UNREACHABLE),
        }
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

/// What a request waited for.
enum Got<S: PooledSession> {
    Slot(SlotUse<S>),
    Permit(SessionPermit),
}
