//! A wrapped server that is reached over lines: the pipes of a program, or the event stream and the POSTs of
//! HTTP+SSE (2024-11-05). Many requests run over one line, and not every message of the server names its
//! request.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub(super) mod ask;
pub(super) mod borrowed;
pub(super) mod event;
mod handshake;
pub(super) mod health;
mod mailbox;
pub(super) mod overlong;
pub(super) mod pool;
mod probe;
mod running;
pub mod session;
pub mod sessions;
pub(super) mod shared;
mod source;
mod spare;
mod state;
mod subscription;
pub(super) mod writer;

use crate::upstream::credentials::Credentials;
use crate::upstream::line::pool::LinePool;
use crate::upstream::line::session::LineSession;
use crate::upstream::line::shared::SharedLine;
pub(super) use crate::upstream::line::source::LineSource;
use crate::upstream::line::spare::SpareFor;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::upstream::cache::Cache;
use crate::upstream::discovery::discovered::Discovered;
use crate::upstream::discovery::legacy_sessions::SessionsAnswer;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::listen::{ListenRequest, Listening};
use crate::upstream::no_session::SessionError;
use crate::upstream::obstacle::Obstacle;
use crate::upstream::pool::{MayAsk, PoolKey, PoolLimits};

/// The time between two looks for lines that are unused or broken.
const ROUND: Duration = Duration::from_secs(1);

/// The server and its lines.
#[derive(Debug)]
pub(super) struct LineServer {
    pool: Arc<LinePool>,
}

impl LineServer {
    /// No line is started before it is needed. Must be called inside a runtime.
    pub(super) fn new(source: LineSource, limits: PoolLimits) -> Arc<Self> {
        let pool = Arc::new(LinePool::new(source, limits));
        let stop = pool.source.stop().clone();
        let keeping = evict_idle(Arc::clone(&pool), stop);
        pool.source.services().spawn(keeping);
        Arc::new(Self { pool })
    }

    /// Finds out the era from the spare process, which the first caller then uses. If the future is dropped,
    /// the probe goes on.
    pub(super) async fn probe(&self) -> Result<Era, SessionError> {
        let pool = Arc::clone(&self.pool);
        // A job, because a probe that is dropped half-way would leave a process that nothing uses or ends.
        let asking = async move { Box::pin(probe::probe(&pool)).await };
        let asked = self.pool.source.services().spawn(asking).await;
        asked.map_err(|_| UNREACHABLE)?
    }

    /// Finds out the era over a new line that is ended afterwards, whatever is known or configured.
    pub(super) async fn probe_anew(&self) -> Result<Era, SessionError> {
        let pool = Arc::clone(&self.pool);
        let asking = async move { Box::pin(probe::probe_anew(&pool)).await };
        let asked = self.pool.source.services().spawn(asking).await;
        asked.map_err(|_| UNREACHABLE)?
    }

    /// Starts the spare process before a caller needs one. Nothing is sent to it.
    pub(super) fn start_early(&self) {
        let pool = Arc::clone(&self.pool);
        let starting = async move { Box::pin(pool.start_spare()).await };
        // Not awaited: a request that comes meanwhile waits at the place of the process (`SpareSlot::take`).
        drop(self.pool.source.services().spawn(starting));
    }

    /// Ends the spare process: the era that was found out there is no longer true.
    pub(super) fn end_early(&self) {
        self.pool.spare_place.close_unused(Duration::ZERO);
    }

    /// Sends `initialize` over a new line and reads the answer. `None`: there was none. If the future is
    /// dropped, the request goes on.
    pub(super) async fn takes_sessions(&self) -> Option<SessionsAnswer> {
        let pool = Arc::clone(&self.pool);
        let asking = async move { Box::pin(probe::takes_sessions(&pool)).await };
        self.pool.source.services().spawn(asking).await.ok()?
    }

    pub(super) fn pool(&self) -> &Arc<LinePool> {
        &self.pool
    }

    pub(super) fn listen(&self, era: Option<Era>, wish: ListenRequest) -> Listening {
        subscription::listen(Arc::clone(&self.pool), era, wish)
    }

    /// Returns the number of lines that were started for calls, including those that failed to start.
    pub(super) fn starts(&self) -> usize {
        self.pool.starts()
    }

    pub(super) fn tools(&self) -> &Cache<Tools> {
        &self.pool.tools
    }

    /// Returns a legacy server's description of itself in its answer to `initialize` on one of the caller's lines. If the
    /// caller has no line, one is started, which the caller's calls will use.
    pub(super) async fn described(
        &self,
        caller: [u8; 16],
        credentials: Option<&Credentials>,
        capabilities: &str,
    ) -> Result<Arc<Discovered>, SessionError> {
        let line = if let Some(line) = self.pool.any_of(caller) {
            line
        } else {
            let key = PoolKey::legacy(caller, capabilities);
            let held = self.pool.get(&key, MayAsk::Never, credentials).await?;
            held.session
        };
        let described = line.described.get().cloned();
        let silent = Failure::new(Reason::UpstreamInvalid, SideEffect::None);
        described.ok_or(SessionError::Failed(silent))
    }

    /// Opens a session for one legacy client over a line of its own, and returns the session with its id. The
    /// limit of lines counts it.
    pub(super) async fn open_session(
        &self,
        caller: [u8; 16],
        credentials: Option<&Credentials>,
        line: sessions::LineChoice,
    ) -> Result<(Box<str>, Arc<LineSession>), SessionError> {
        let spare = match line {
            sessions::LineChoice::Any => {
                let spare_for = SpareFor {
                    era: Era::Legacy,
                    declared: None,
                };
                self.pool.take_spare(spare_for).await
            }
            sessions::LineChoice::New => None,
        };
        let going_on = |writer, _: &SharedLine| LineSession::new(writer, caller, true);
        // The spare process may have ended since it was taken, and then the client gets a line of a new process.
        let session =
            if let Some(session) = spare.and_then(|spare| spare.handover.hand_over(going_on)) {
                session
            } else {
                // The spare process has a permit already, so only a new line needs one.
                let permit = self.pool.permit(Some(caller)).await?;
                let start = self.pool.source.start(permit, credentials, |writer| {
                    LineSession::new(writer, caller, false)
                });
                start.await?
            };
        let id = self.pool.sessions.keep(&session);
        Ok((id, session))
    }

    pub(super) fn session(&self, id: &str, caller: [u8; 16]) -> Option<Arc<LineSession>> {
        self.pool.sessions.get(id, caller)
    }

    pub(super) fn cannot_run(&self) -> bool {
        self.pool.source.cannot_run()
    }

    /// Returns the last obstacle that kept a program from running.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        match &self.pool.source {
            LineSource::Program(launcher) => launcher.obstacles.last(),
            LineSource::Sse(_) => None,
        }
    }

    /// Returns the time that [`Self::stop`] may take.
    pub(super) fn stop_patience(&self) -> Duration {
        self.pool.source.stop_patience()
    }

    /// Ends every line, within a few seconds. None is started afterwards.
    pub(super) async fn stop(&self) {
        self.pool.stop(self.stop_patience()).await;
    }
}

impl Drop for LineServer {
    fn drop(&mut self) {
        // Jobs hold the pool and its lines, so only the token ends them.
        self.pool.source.stop().cancel();
    }
}

/// Ends unused lines, and tries again to run a program that could not be run. Without that, a replica that is
/// not ready gets no calls, and so never learns that its program works again.
async fn evict_idle(pool: Arc<LinePool>, stop: CancellationToken) {
    let mut round = tokio::time::interval(ROUND);
    // Otherwise a process that was suspended would look many times in a row.
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(round.tick()).await.is_some() {
        pool.close_unused();
        if pool.source.is_to_be_tried()
            && let Some(Ok(era)) = stop.run_until_cancelled(probe::probe(&pool)).await
        {
            // A probe is no call, so the line itself does not report that the program works.
            pool.source.health().answered();
            tracing::info!(?era, "the server can be run again");
        }
    }
}
