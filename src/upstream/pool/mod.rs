//! Sessions at the server that calls share: over Streamable HTTP, and over lines. The pool starts a session when
//! a call needs one, bounds how many there are, and ends those that are unused.
//!
//! A session belongs to one caller with one set of capabilities. Which call gets which session is in [`rule`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::lock::Mutex;
use crate::mcp::error::Failure;
use crate::mcp::version::Era;
use crate::telemetry::limits::{self, LimitHit};
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::no_session::NoSession;
use crate::upstream::port::UpstreamRequest;
use crate::upstream::translate;

mod rule;
mod slot;
#[cfg(test)]
mod tests;

pub(in crate::upstream) use crate::upstream::pool::rule::{MayAsk, Questions, Sharing};
pub(in crate::upstream) use crate::upstream::pool::slot::{Held, PooledSession};
use crate::upstream::pool::slot::{Slot, SlotUse};

/// An unused session is ended after this.
pub(in crate::upstream) const IDLE: Duration = Duration::from_mins(5);

/// Whose session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::upstream) struct SessionKey {
    pub(in crate::upstream) caller: [u8; 16],
    pub(in crate::upstream) era: Era,
    /// What is declared to a legacy server when the session begins, as JSON. A modern server hears the
    /// capabilities with each request, so nothing is declared.
    pub(in crate::upstream) declared: Arc<str>,
}

impl SessionKey {
    pub(in crate::upstream) fn of(era: Era, request: &UpstreamRequest) -> Self {
        match era {
            Era::Legacy => Self::legacy(request.caller, &request.capabilities),
            Era::Modern => Self::new(era, request.caller, "{}"),
        }
    }

    /// For a legacy server and a client that declares these capabilities, as modern clients do.
    pub(in crate::upstream) fn legacy(caller: [u8; 16], capabilities: &str) -> Self {
        let declared = translate::legacy_capabilities(capabilities);
        Self::new(Era::Legacy, caller, declared)
    }

    pub(in crate::upstream) fn new(
        era: Era,
        caller: [u8; 16],
        declared: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            caller,
            era,
            declared: declared.into(),
        }
    }
}

/// How many sessions there may be, and which calls may share one.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct PoolLimits {
    pub(in crate::upstream) sessions_max: usize,
    /// The setting that says so.
    pub(in crate::upstream) setting: &'static str,
    /// How long a call waits for a session to end when all are in use.
    pub(in crate::upstream) wait: Duration,
    pub(in crate::upstream) sharing: Sharing,
}

/// A session that was started, and the permit for it unless the session keeps that itself.
pub(in crate::upstream) struct Started<S> {
    pub(in crate::upstream) session: Arc<S>,
    pub(in crate::upstream) permit: Option<OwnedSemaphorePermit>,
}

/// The sessions at one server.
#[derive(Debug)]
pub(in crate::upstream) struct SessionPool<S> {
    by_key: Mutex<HashMap<SessionKey, Vec<Arc<Slot<S>>>>>,
    /// One for each session, of whatever kind: those outside of the pool, too.
    permits: Arc<Semaphore>,
    limits: PoolLimits,
    services: TaskTracker,
}

impl<S: PooledSession> SessionPool<S> {
    pub(in crate::upstream) fn new(limits: PoolLimits, services: TaskTracker) -> Self {
        Self {
            by_key: Mutex::default(),
            permits: Arc::new(Semaphore::new(limits.sessions_max)),
            limits,
            services,
        }
    }

    pub(in crate::upstream) fn sharing(&self) -> Sharing {
        self.limits.sharing
    }

    /// A session of that key, started by one of all who want it. It may have ended by the time it is used. Dropped
    /// before it resolves, the start goes on, and the next call may have the session.
    ///
    /// `has_spare`: `start` needs no permit, because something that holds one is about to become a session.
    pub(in crate::upstream) async fn get<F>(
        self: &Arc<Self>,
        key: &SessionKey,
        asks: MayAsk,
        has_spare: bool,
        start: impl FnOnce(Option<OwnedSemaphorePermit>) -> F + Send + 'static,
    ) -> Result<Held<S>, NoSession>
    where
        F: Future<Output = Result<Started<S>, NoSession>> + Send + 'static,
    {
        let slot = self.choose(key, asks, has_spare);
        self.start_in(key, slot, start).await
    }

    /// A new session, whatever is unused.
    pub(in crate::upstream) async fn start<F>(
        self: &Arc<Self>,
        key: &SessionKey,
        start: impl FnOnce(Option<OwnedSemaphorePermit>) -> F + Send + 'static,
    ) -> Result<Held<S>, NoSession>
    where
        F: Future<Output = Result<Started<S>, NoSession>> + Send + 'static,
    {
        let slot = Slot::new(self.try_permit());
        let first = SlotUse::of(&slot, MayAsk::Maybe);
        self.by_key
            .lock()
            .entry(key.clone())
            .or_default()
            .push(slot);
        self.start_in(key, first, start).await
    }

    /// The slot to use, and the place there: both in one step, so that no two calls find the same session free.
    fn choose(&self, key: &SessionKey, asks: MayAsk, has_spare: bool) -> SlotUse<S> {
        let sharing = self.limits.sharing;
        let mut by_key = self.by_key.lock();
        let slots = by_key.entry(key.clone()).or_default();
        slots.retain(|slot| !slot.is_over());
        let fitting = rule::fitting(sharing, asks, slots, |slot| slot.state());
        if let Some(slot) = fitting.and_then(|at| slots.get(at)) {
            return SlotUse::of(slot, asks);
        }
        let permit = self.try_permit();
        let shared = rule::shared_at_the_limit(sharing, slots, |slot| slot.state());
        if permit.is_none()
            && !has_spare
            && let Some(slot) = shared.and_then(|at| slots.get(at)).cloned()
        {
            // There will be room for the next. A process holds state, so the one that is shared is not ended for it.
            let is_kept = sharing == Sharing::UntilAsked;
            let kept = is_kept.then(|| SlotUse::of(&slot, asks));
            close_longest_unused(&mut by_key);
            return kept.unwrap_or_else(|| SlotUse::of(&slot, asks));
        }
        let slot = Slot::new(permit);
        slots.push(Arc::clone(&slot));
        SlotUse::of(&slot, asks)
    }

    async fn start_in<F>(
        self: &Arc<Self>,
        key: &SessionKey,
        slot: SlotUse<S>,
        start: impl FnOnce(Option<OwnedSemaphorePermit>) -> F + Send + 'static,
    ) -> Result<Held<S>, NoSession>
    where
        F: Future<Output = Result<Started<S>, NoSession>> + Send + 'static,
    {
        if let Some(session) = slot.slot.session.get() {
            let session = Arc::clone(session);
            return Ok(Held { session, slot });
        }
        let (pool, key, place) = (Arc::clone(self), key.clone(), Arc::clone(&slot.slot));
        let starting = self.services.spawn(async move {
            let start = || async {
                let permit = place.permit.lock().take();
                let started = Box::pin(start(permit)).await?;
                *place.permit.lock() = started.permit;
                Ok::<_, NoSession>(started.session)
            };
            let started = place.session.get_or_try_init(start).await.cloned();
            pool.keep_or_forget(&key, &place);
            started
        });
        let session = starting
            .await
            .map_err(|_| NoSession::Failed(UNREACHABLE))??;
        Ok(Held { session, slot })
    }

    /// Removes a slot whose session could not be started, and puts back a slot whose session was started for a
    /// caller that waited longer.
    fn keep_or_forget(&self, key: &SessionKey, slot: &Arc<Slot<S>>) {
        let mut by_key = self.by_key.lock();
        let slots = by_key.entry(key.clone()).or_default();
        let at = slots.iter().position(|kept| Arc::ptr_eq(kept, slot));
        match (slot.session.get(), at) {
            (None, Some(at)) => drop(slots.remove(at)),
            (Some(_), None) => slots.push(Arc::clone(slot)),
            (None, None) | (Some(_), Some(_)) => {}
        }
        if slots.is_empty() {
            by_key.remove(key);
        }
    }

    /// Gives the session to no other call, and its permit back at once, whoever still uses it.
    pub(in crate::upstream) fn forget(&self, held: &Held<S>) {
        let slot = &held.slot.slot;
        self.by_key.lock().retain(|_, slots| {
            slots.retain(|kept| !Arc::ptr_eq(kept, slot));
            !slots.is_empty()
        });
        drop(slot.permit.lock().take());
    }

    /// An open session of that caller, whatever was declared on it.
    pub(in crate::upstream) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<S>> {
        let by_key = self.by_key.lock();
        let own = by_key.iter().filter(|(key, _)| key.caller == caller);
        let mut sessions = own
            .flat_map(|(_, slots)| slots)
            .filter_map(|slot| slot.session.get());
        sessions.find(|session| session.is_open()).cloned()
    }

    fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// The right to one more session. When all are in use, `make_room` ends what can be spared.
    pub(in crate::upstream) async fn permit(
        &self,
        make_room: impl FnOnce(&Self) -> bool,
    ) -> Result<OwnedSemaphorePermit, Failure> {
        if let Some(permit) = self.try_permit() {
            return Ok(permit);
        }
        make_room(self);
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let Ok(waited) = timeout(self.limits.wait, waiting).await else {
            let (setting, max) = (self.limits.setting, self.limits.sessions_max);
            limits::refused(LimitHit::Sessions);
            warn!(
                setting,
                max, "all sessions at the server are in use, and none became free in time"
            );
            return Err(UNREACHABLE);
        };
        waited.map_err(|_| UNREACHABLE)
    }

    /// Ends the session that was unused for longest. False where all are in use.
    pub(in crate::upstream) fn close_longest_unused(&self) -> bool {
        close_longest_unused(&mut self.by_key.lock())
    }

    /// Ends sessions that were unused for [`IDLE`], and forgets those that have ended.
    pub(in crate::upstream) fn close_idle(&self) {
        let now = Instant::now();
        let is_idle = |since| now.saturating_duration_since(since) >= IDLE;
        retain(&mut self.by_key.lock(), |slot| {
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
        retain(&mut self.by_key.lock(), |slot| {
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
        let sessions_max = u32::try_from(self.limits.sessions_max).unwrap_or(u32::MAX);
        let all = self.permits.acquire_many(sessions_max);
        let _ = timeout(patience, all).await;
        // Calls that still wait for a session get none.
        self.permits.close();
    }
}

fn retain<S>(
    by_key: &mut HashMap<SessionKey, Vec<Arc<Slot<S>>>>,
    mut is_kept: impl FnMut(&Slot<S>) -> bool,
) {
    by_key.retain(|_, slots| {
        slots.retain(|slot| is_kept(slot));
        !slots.is_empty()
    });
}

/// Ends the session that was unused for longest. False where all are in use.
fn close_longest_unused<S: PooledSession>(
    by_key: &mut HashMap<SessionKey, Vec<Arc<Slot<S>>>>,
) -> bool {
    let slots = by_key.values().flatten();
    let unused = slots.filter_map(|slot| slot.unused());
    let Some((_, longest)) = unused.min_by_key(|(since, _)| *since) else {
        return false;
    };
    longest.close_unused();
    // A permit that is kept with the slot is free now.
    retain(by_key, |slot| !slot.is_over());
    true
}
