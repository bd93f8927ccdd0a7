//! The lines that translated and modern callers share, and how the pool starts them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::mcp::error::Failure;
use crate::mcp::tools::Tools;
use crate::upstream::cache::Cache;
use crate::upstream::credentials::Credentials;
use crate::upstream::line::handshake::{START_PATIENCE, agreed};
use crate::upstream::line::sessions::LineSessions;
use crate::upstream::line::shared::SharedLine;
use crate::upstream::line::source::LineSource;
use crate::upstream::line::spare::{HandoverListener, Heard, Spare, SpareFor, SpareSlot};
use crate::upstream::no_session::SessionError;
use crate::upstream::pool::{
    IDLE, MayAsk, Placing, PoolKey, PoolLimits, Pooled, SessionPermit, SessionPool, SlotUse,
    Started, UsedUp,
};

/// A line in use.
pub(in crate::upstream) type PooledLine = Pooled<SharedLine>;

/// All lines to one server.
#[derive(Debug)]
pub(in crate::upstream) struct LinePool {
    pub(in crate::upstream) source: LineSource,
    pub(super) sessions: LineSessions,
    /// The place of a process that no caller uses yet.
    pub(super) spare_place: SpareSlot,
    lines: Arc<SessionPool<SharedLine>>,
    /// The capabilities that the first caller declares.
    expected: OnceLock<Arc<str>>,
    /// The number of lines that were started for calls.
    starts: AtomicUsize,
    pub(in crate::upstream) tools: Arc<Cache<Tools>>,
}

impl LinePool {
    pub(in crate::upstream) fn new(source: LineSource, limits: PoolLimits) -> Self {
        let lines = SessionPool::new(limits, source.services().clone());
        Self {
            source,
            sessions: LineSessions::default(),
            spare_place: SpareSlot::default(),
            lines: Arc::new(lines),
            expected: OnceLock::new(),
            starts: AtomicUsize::new(0),
            tools: Arc::default(),
        }
    }

    /// A line of that key, see [`SessionPool::get`].
    pub(in crate::upstream) async fn get(
        self: &Arc<Self>,
        key: &PoolKey,
        asks: MayAsk,
        credentials: Option<&Credentials>,
    ) -> Result<PooledLine, SessionError> {
        let start = self.starting(key, credentials);
        let has_spare = self.spare_place.fits(spare_for(key));
        let make_room = |_: &SessionPool<SharedLine>, used_up| self.make_room(used_up);
        let getting = self.lines.get(key, asks, has_spare, make_room, start);
        let pooled = getting.await?;
        pooled.session.writer().renew(credentials);
        Ok(pooled)
    }

    /// The right to use a line of that key, or a position among those that wait for it.
    pub(in crate::upstream) fn place(&self, key: &PoolKey, asks: MayAsk) -> Placing<SharedLine> {
        let has_spare = self.spare_place.fits(spare_for(key));
        let make_room = |_: &SessionPool<SharedLine>, used_up| self.make_room(used_up);
        self.lines.place(key, asks, has_spare, make_room)
    }

    /// The line of that place. `Err`: it is not there yet, and is started.
    pub(in crate::upstream) fn pooled(
        self: &Arc<Self>,
        slot: SlotUse<SharedLine>,
        credentials: Option<&Credentials>,
    ) -> Result<PooledLine, BoxFuture<'static, Result<PooledLine, SessionError>>> {
        let slot = match slot.pooled() {
            Ok(pooled) => {
                pooled.session.writer().renew(credentials);
                return Ok(pooled);
            }
            Err(slot) => slot,
        };
        let start = self.starting(slot.key(), credentials);
        let (lines, credentials) = (Arc::clone(&self.lines), credentials.cloned());
        Err(Box::pin(async move {
            let pooled = lines.start_in(slot, start).await?;
            pooled.session.writer().renew(credentials.as_ref());
            Ok(pooled)
        }))
    }

    /// How the pool starts a line.
    fn starting(
        self: &Arc<Self>,
        key: &PoolKey,
        credentials: Option<&Credentials>,
    ) -> impl FnOnce(
        Option<SessionPermit>,
    ) -> BoxFuture<'static, Result<Started<SharedLine>, SessionError>>
    + Send
    + 'static {
        let (pool, key, shown) = (Arc::clone(self), key.clone(), credentials.cloned());
        move |permit| {
            Box::pin(async move {
                let line = pool.start(&key, permit, shown.as_ref()).await?;
                // The process or the stream has the permit, until nothing is left of it.
                Ok(Started {
                    session: line,
                    permit: None,
                })
            })
        }
    }

    /// Notes what a caller will declare to a legacy server. It is asked by that for its era, so that the process that is
    /// asked can be used by this caller.
    pub(in crate::upstream) fn expect(&self, declared: impl FnOnce() -> Arc<str>) {
        self.expected.get_or_init(declared);
    }

    /// Returns the capabilities that the first caller declares, if there is one.
    pub(super) fn expected(&self) -> Arc<str> {
        self.expected.get().map_or_else(|| "{}".into(), Arc::clone)
    }

    pub(in crate::upstream) fn starts(&self) -> usize {
        self.starts.load(Ordering::Relaxed)
    }

    /// Returns `true` if the caller has a line, or one is being started for it.
    pub(in crate::upstream) fn has_any_of(&self, caller: [u8; 16]) -> bool {
        self.lines.has_any_of(caller)
    }

    /// An open line of that caller, whatever was declared on it.
    pub(in crate::upstream) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<SharedLine>> {
        self.lines.any_of(caller)
    }

    async fn start(
        &self,
        key: &PoolKey,
        permit: Option<SessionPermit>,
        credentials: Option<&Credentials>,
    ) -> Result<Arc<SharedLine>, SessionError> {
        // The spare process goes first: it runs already and holds a permit, so `permit` is free again.
        if let Some(line) = self.go_on(key).await {
            return Ok(line);
        }
        let permit = match permit {
            Some(permit) => permit,
            // The pool counted on the spare process, which is gone or of no use by now.
            None => self.permit(Some(key.caller)).await?,
        };
        self.starts.fetch_add(1, Ordering::Relaxed);
        let (declared, tools) = (Arc::clone(&key.declared), Arc::clone(&self.tools));
        let start = self.source.start(permit, credentials, |writer| {
            SharedLine::new(writer, declared, tools)
        });
        agreed(start.await?, key).await
    }

    /// Makes the spare process the line of that key. `None`: there is no spare process, or it refused the
    /// handshake.
    async fn go_on(&self, key: &PoolKey) -> Option<Arc<SharedLine>> {
        let spare = self.take_spare(spare_for(key)).await?;
        let (declared, tools) = (Arc::clone(&key.declared), Arc::clone(&self.tools));
        let line = spare
            .handover
            .hand_over(|writer, first| SharedLine::after(first, writer, declared, tools))?;
        let agreed = match spare.heard {
            // The process may not accept a handshake after what it was asked before.
            Heard::Nothing => agreed(line, key).await.ok()?,
            Heard::Initialize(_) => line,
        };
        // Only a line that is used counts: after a failed handshake, `start` counts the next one.
        self.starts.fetch_add(1, Ordering::Relaxed);
        Some(agreed)
    }

    /// Takes the spare process, for that caller.
    pub(super) async fn take_spare(&self, caller: SpareFor<'_>) -> Option<Spare> {
        self.spare_place.take(caller, START_PATIENCE).await
    }

    /// Starts a process that no caller uses yet.
    pub(super) async fn start_process(&self) -> Result<Arc<HandoverListener>, SessionError> {
        let permit = self.permit(None).await?;
        let tools = Arc::clone(&self.tools);
        let start = self.source.start(permit, None, |writer| {
            HandoverListener::new(SharedLine::new(writer, "{}".into(), tools))
        });
        start.await
    }

    /// Starts the spare process, if there is none.
    pub(in crate::upstream) async fn start_spare(&self) {
        // A start that fails frees the place again, and the first call starts a process of its own.
        if let Some(turn) = self.spare_place.try_turn()
            && let Ok(handover) = self.start_process().await
        {
            turn.put(Spare::new(handover, None, Heard::Nothing));
        }
    }

    /// The right to start one more line, for that caller or for raincheck itself. When all are in use, the line that
    /// was unused for longest is ended. A client's session holds state, so it is ended only when no other line is
    /// unused.
    pub(in crate::upstream) async fn permit(
        &self,
        caller: Option<[u8; 16]>,
    ) -> Result<SessionPermit, Failure> {
        let make_room = |_: &SessionPool<SharedLine>, used_up| self.make_room(used_up);
        self.lines.permit(caller, make_room).await
    }

    fn make_room(&self, used_up: UsedUp) -> bool {
        // The spare process is no caller's.
        (used_up == UsedUp::Everything && self.spare_place.close_unused(Duration::ZERO))
            || self.lines.close_longest_unused(used_up)
            || self.sessions.make_room(used_up)
    }

    /// Ends lines that were unused for long, and forgets those that have ended.
    pub(in crate::upstream) fn close_unused(&self) {
        self.spare_place.close_unused(IDLE);
        self.lines.close_idle();
        self.sessions.close_unused();
        // Sessions become silent for long enough without any event, so requests that wait are looked at here.
        self.lines.make_room(|used_up| self.make_room(used_up));
    }

    /// Ends all lines, and waits for a bounded time until nothing is left of them.
    pub(in crate::upstream) async fn stop(&self, patience: Duration) {
        self.source.stop().cancel();
        self.lines.ended(patience).await;
    }
}

fn spare_for(key: &PoolKey) -> SpareFor<'_> {
    SpareFor {
        era: key.era,
        declared: Some(&key.declared),
    }
}
