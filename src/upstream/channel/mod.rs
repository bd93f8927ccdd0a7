//! A wrapped server that is reached over lines: the pipes of a program, or the event stream and
//! posts of HTTP+SSE (2024-11-05). Many requests run over one line, and what is said on it names
//! them or does not.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub(super) mod ask;
mod handshake;
pub(super) mod health;
mod listen;
pub(super) mod mouth;
mod news;
pub(super) mod overlong;
pub(super) mod pool;
mod probe;
pub(super) mod requests;
mod running;
pub(super) mod said;
pub(super) mod seat;
pub mod session;
pub mod sessions;
mod source;
mod spare;
mod table;

use pool::{Key, Pool};
pub(super) use pool::{Limits, Sharing};
use requests::{Asks, Channel};
use session::Session;
pub(super) use source::Source;

use super::cache::Cache;
use super::discovered::Discovered;
use super::failures::UNREACHABLE;
use super::handshake as server_handshake;
use super::listen::{Listening, Wish};
use super::no_session::NoSession;
use super::obstacle::Obstacle;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;

/// Between looks at what is unused or broken.
const ROUND: Duration = Duration::from_secs(1);

/// The server and its lines.
#[derive(Debug)]
pub(super) struct Channels {
    pool: Arc<Pool>,
}

impl Channels {
    /// No line is started before it is needed. Must be called inside a runtime.
    pub(super) fn new(source: Source, limits: Limits) -> Arc<Self> {
        let pool = Arc::new(Pool::new(source, limits));
        let stop = pool.source.stop().clone();
        let keeping = keep_house(Arc::clone(&pool), stop);
        pool.source.services().spawn(keeping);
        Arc::new(Self { pool })
    }

    /// Asks for the era, of a process with which whoever comes first goes on. Dropped before it
    /// resolves, the asking goes on.
    pub(super) async fn probe(&self) -> Result<Era, NoSession> {
        let pool = Arc::clone(&self.pool);
        let asking = async move { Box::pin(probe::probe(&pool)).await };
        let asked = self.pool.source.services().spawn(asking).await;
        asked.map_err(|_| UNREACHABLE)?
    }

    /// The same over a line of its own, which it ends, whatever is known or configured.
    pub(super) async fn probe_anew(&self) -> Result<Era, NoSession> {
        let pool = Arc::clone(&self.pool);
        let asking = async move { Box::pin(probe::probe_anew(&pool)).await };
        let asked = self.pool.source.services().spawn(asking).await;
        asked.map_err(|_| UNREACHABLE)?
    }

    /// Starts a process before anybody asks for one. Nothing is said to it.
    pub(super) fn start_early(&self) {
        let pool = Arc::clone(&self.pool);
        let starting = async move { Box::pin(pool.start_spare()).await };
        drop(self.pool.source.services().spawn(starting));
    }

    /// What a process was found to be, which nobody uses yet, is no longer so.
    pub(super) fn end_early(&self) {
        self.pool.bench.close_unused(Duration::ZERO);
    }

    /// What the server says to an `initialize`, asked over a line of its own. `None`: it did not say.
    /// Dropped before it resolves, the asking goes on.
    pub(super) async fn takes_sessions(&self) -> Option<server_handshake::Said> {
        let pool = Arc::clone(&self.pool);
        let asking = async move { Box::pin(probe::takes_sessions(&pool)).await };
        self.pool.source.services().spawn(asking).await.ok()?
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(super) fn listen(&self, era: Option<Era>, wish: Wish) -> Listening {
        listen::listen(Arc::clone(&self.pool), era, wish)
    }

    /// How many lines were begun for calls, with those that came to nothing.
    pub(super) fn starts(&self) -> usize {
        self.pool.starts()
    }

    pub(super) fn tools(&self) -> &Cache<Tools> {
        &self.pool.tools
    }

    /// What a legacy server said of itself when one of the caller's lines began. If there is none,
    /// one is started that the caller's calls will use.
    pub(super) async fn described(
        &self,
        caller: [u8; 16],
        credentials: Option<&HeaderValue>,
        capabilities: &str,
    ) -> Result<Arc<Discovered>, NoSession> {
        let channel = if let Some(channel) = self.pool.any_of(caller) {
            channel
        } else {
            let key = Key::new(Era::Legacy, caller, capabilities);
            let held = self.pool.get(&key, Asks::Never, credentials).await?;
            held.channel
        };
        let described = channel.described.get().cloned();
        let silent = Failure::new(Reason::UpstreamInvalid, SideEffect::None);
        described.ok_or(NoSession::Failed(silent))
    }

    /// A session for one legacy client, with a line of its own; its id. Bounded as lines are.
    pub(super) async fn open_session(
        &self,
        caller: [u8; 16],
        credentials: Option<&HeaderValue>,
        line: sessions::Line,
    ) -> Result<(Box<str>, Arc<Session>), NoSession> {
        let spare = match line {
            sessions::Line::Any => self.pool.take_spare(Era::Legacy).await,
            sessions::Line::New => None,
        };
        let going_on = |mouth, _: &Channel| Session::new(mouth, caller, true);
        let session = if let Some(session) = spare.and_then(|spare| spare.hand_over(going_on)) {
            session
        } else {
            let permit = self.pool.permit().await?;
            let start = self.pool.source.start(permit, credentials, |mouth| {
                Session::new(mouth, caller, false)
            });
            start.await?
        };
        let id = self.pool.sessions.keep(&session);
        Ok((id, session))
    }

    pub(super) fn session(&self, id: &str, caller: [u8; 16]) -> Option<Arc<Session>> {
        self.pool.sessions.get(id, caller)
    }

    pub(super) fn cannot_run(&self) -> bool {
        self.pool.source.cannot_run()
    }

    /// What last stood in the way of a program.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        match &self.pool.source {
            Source::Program(nursery) => nursery.obstacles.last(),
            Source::Sse(_) => None,
        }
    }

    /// How long [`Self::stop`] may take.
    pub(super) fn stop_patience(&self) -> Duration {
        self.pool.source.stop_patience()
    }

    /// Ends every line, within a few seconds. None is started afterwards.
    pub(super) async fn stop(&self) {
        self.pool.stop(self.stop_patience()).await;
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.pool.source.stop().cancel();
    }
}

/// Ends what is unused, and tries again what could not be run: whoever routes by readiness sends no
/// call that would.
async fn keep_house(pool: Arc<Pool>, stop: CancellationToken) {
    let mut round = tokio::time::interval(ROUND);
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(round.tick()).await.is_some() {
        pool.close_unused(pool::IDLE);
        pool.sessions.close_unused();
        if pool.source.is_to_be_tried()
            && let Some(Ok(era)) = stop.run_until_cancelled(probe::probe(&pool)).await
        {
            pool.source.health().answered();
            tracing::info!(?era, "the server can be run again");
        }
    }
}
