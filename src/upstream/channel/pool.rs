//! The lines that translated and modern callers share, and how the pool starts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::sync::OwnedSemaphorePermit;

use crate::mcp::error::Failure;
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::upstream::cache::Cache;
use crate::upstream::channel::handshake::{START_PATIENCE, agreed};
use crate::upstream::channel::sessions::LineSessions;
use crate::upstream::channel::shared::SharedLine;
use crate::upstream::channel::source::LineSource;
use crate::upstream::channel::spare::{Bench, Lobby, Spare};
use crate::upstream::no_session::NoSession;
use crate::upstream::pool::{Held, IDLE, MayAsk, PoolLimits, SessionKey, SessionPool, Started};

/// A line in use.
pub(in crate::upstream) type HeldLine = Held<SharedLine>;

/// All lines to one server.
#[derive(Debug)]
pub(in crate::upstream) struct LinePool {
    pub(in crate::upstream) source: LineSource,
    pub(super) sessions: LineSessions,
    /// A process that no caller uses yet.
    pub(super) bench: Bench,
    lines: Arc<SessionPool<SharedLine>>,
    /// Lines for calls that were begun.
    starts: AtomicUsize,
    pub(in crate::upstream) tools: Arc<Cache<Tools>>,
}

impl LinePool {
    pub(in crate::upstream) fn new(source: LineSource, limits: PoolLimits) -> Self {
        let lines = SessionPool::new(limits, source.services().clone());
        Self {
            source,
            sessions: LineSessions::default(),
            bench: Bench::default(),
            lines: Arc::new(lines),
            starts: AtomicUsize::new(0),
            tools: Arc::default(),
        }
    }

    /// A line of that key, see [`SessionPool::get`].
    pub(in crate::upstream) async fn get(
        self: &Arc<Self>,
        key: &SessionKey,
        asks: MayAsk,
        credentials: Option<&HeaderValue>,
    ) -> Result<HeldLine, NoSession> {
        let (pool, key_there, credentials) = (Arc::clone(self), key.clone(), credentials.cloned());
        let start = |permit| async move {
            let line = pool.start(&key_there, permit, credentials.as_ref()).await?;
            // The process or the stream has the permit, until nothing is left of it.
            Ok(Started {
                session: line,
                permit: None,
            })
        };
        let has_spare = self.bench.fits(key.era);
        self.lines.get(key, asks, has_spare, start).await
    }

    pub(in crate::upstream) fn starts(&self) -> usize {
        self.starts.load(Ordering::Relaxed)
    }

    /// A line of that caller that is there already, whatever was declared on it.
    pub(in crate::upstream) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<SharedLine>> {
        self.lines.any_of(caller)
    }

    async fn start(
        &self,
        key: &SessionKey,
        permit: Option<OwnedSemaphorePermit>,
        credentials: Option<&HeaderValue>,
    ) -> Result<Arc<SharedLine>, NoSession> {
        if let Some(line) = self.go_on(key).await {
            return Ok(line);
        }
        let permit = match permit {
            Some(permit) => permit,
            None => self.permit().await?,
        };
        self.starts.fetch_add(1, Ordering::Relaxed);
        let (declared, tools) = (Arc::clone(&key.declared), Arc::clone(&self.tools));
        let start = self.source.start(permit, credentials, |writer| {
            SharedLine::new(writer, declared, tools)
        });
        agreed(start.await?, key).await
    }

    /// With the spare process. `None`: there is none, or it cannot be gone on with.
    async fn go_on(&self, key: &SessionKey) -> Option<Arc<SharedLine>> {
        let lobby = self.take_spare(key.era).await?;
        let (declared, tools) = (Arc::clone(&key.declared), Arc::clone(&self.tools));
        let line =
            lobby.hand_over(|writer, first| SharedLine::after(first, writer, declared, tools))?;
        // What it heard before it may not bear.
        let agreed = agreed(line, key).await.ok()?;
        self.starts.fetch_add(1, Ordering::Relaxed);
        Some(agreed)
    }

    /// The spare process, for one who speaks that era to it.
    pub(super) async fn take_spare(&self, era: Era) -> Option<Arc<Lobby>> {
        self.bench.take(era, START_PATIENCE).await
    }

    /// A process that is asked for the era, or has heard nothing yet.
    pub(super) async fn start_lobby(&self) -> Result<Arc<Lobby>, NoSession> {
        let permit = self.permit().await?;
        let tools = Arc::clone(&self.tools);
        let start = self.source.start(permit, None, |writer| {
            Lobby::new(SharedLine::new(writer, "{}".into(), tools))
        });
        start.await
    }

    /// Starts a process of which it is not known yet for whom.
    pub(in crate::upstream) async fn start_spare(&self) {
        if let Some(turn) = self.bench.try_turn()
            && let Ok(lobby) = self.start_lobby().await
        {
            turn.put(Spare::new(lobby, None));
        }
    }

    /// The right to one more line. Where all are in use, the one that was unused for longest makes
    /// room; a client's session holds state, and does so only where no other line is unused.
    pub(in crate::upstream) async fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let make_room = |lines: &SessionPool<SharedLine>| {
            self.bench.close_unused(Duration::ZERO)
                || lines.close_longest_unused()
                || self.sessions.make_room()
        };
        self.lines.permit(make_room).await
    }

    /// Ends lines that were unused for long, and forgets those that have ended.
    pub(in crate::upstream) fn close_unused(&self) {
        self.bench.close_unused(IDLE);
        self.lines.close_idle();
        self.sessions.close_unused();
    }

    /// Ends all, and waits until nothing is left of any line, for a bounded time.
    pub(in crate::upstream) async fn stop(&self, patience: Duration) {
        self.source.stop().cancel();
        self.lines.ended(patience).await;
    }
}
