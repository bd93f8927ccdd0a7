//! The wrapped server as a program that speaks MCP over its standard input and output.
//!
//! raincheck runs it itself, without a shell, in a process group of its own, with an environment
//! that names every variable in it, and leaves nothing of it behind however it ends.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod channel;
mod child;
mod children;
mod exchange;
mod health;
mod lines;
mod listen;
mod probe;
pub mod session;
mod sessions;
mod spawner;
mod stderr;

use channel::Asks;
use child::Nursery;
use children::{Children, Key};
use session::Session;
use sessions::Sessions;
use spawner::Spawner;

use super::cache::Cache;
use super::listen::{Listening, Wish};
use super::sessions::NoSession;
use super::settings::Settings;
use super::wrapped::Discovered;
use super::{Exchange, Outgoing};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;

/// Between looks at what is unused or broken.
const ROUND: Duration = Duration::from_secs(1);

/// A child may take twice 2 s to end, and then it is killed.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(6);

/// How long a call that asks before its task waits for a process to be there; only then its grace
/// window begins. Most are there within two seconds.
pub(super) const START_ALLOWANCE: Duration = Duration::from_secs(10);

/// What is run, and how.
#[derive(Clone)]
pub struct Program {
    /// raincheck itself, which becomes the program after it has tied itself to its parent.
    pub launcher: PathBuf,
    /// A name that is looked for in `PATH`, or a path.
    pub name: String,
    pub arguments: Vec<String>,
    /// All that the program sees of any environment.
    pub environment: Vec<(String, String)>,
    /// `None`: our own.
    pub directory: Option<PathBuf>,
    /// The soft limit of open files. Programs that go through all that they may have open take
    /// long where it is as high as ours. `None`: our own.
    pub open_files: Option<u64>,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            // Also there when the file was replaced, as by an upgrade.
            launcher: if cfg!(target_os = "linux") {
                "/proc/self/exe".into()
            } else {
                std::env::current_exe().unwrap_or_else(|_| "raincheck".into())
            },
            name: String::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            open_files: None,
        }
    }
}

/// Arguments and variables may hold secrets.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The program and its processes.
#[derive(Debug)]
pub(super) struct Stdio {
    children: Arc<Children>,
    sessions: Arc<Sessions>,
    services: TaskTracker,
    stop: CancellationToken,
}

impl Stdio {
    /// Nothing is run before it is needed. Must be called inside a runtime.
    pub(super) fn new(
        settings: &Settings,
        program: &Program,
        services: TaskTracker,
    ) -> io::Result<Arc<Self>> {
        let stop = CancellationToken::new();
        let nursery = Nursery {
            program: program.clone(),
            spawner: Arc::new(Spawner::start()?),
            services: services.clone(),
            health: Arc::default(),
            bytes_max: settings.message_bytes_max,
            stop: stop.clone(),
        };
        let children = Children::new(
            Arc::new(nursery),
            settings.children_max,
            settings.session_wait,
            settings.session,
        );
        let children = Arc::new(children);
        let sessions = Arc::<Sessions>::default();
        let keeping = keep_house(Arc::clone(&children), Arc::clone(&sessions), stop.clone());
        services.spawn(keeping);
        Ok(Arc::new(Self {
            children,
            sessions,
            services,
            stop,
        }))
    }

    /// The era, asked by one of all who want to know and remembered. Dropped before it resolves,
    /// the asking goes on.
    pub(super) async fn era(&self, known: &Arc<OnceCell<Era>>) -> Result<Era, Failure> {
        if let Some(era) = known.get() {
            return Ok(*era);
        }
        let (children, known) = (Arc::clone(&self.children), Arc::clone(known));
        let probing = self.services.spawn(async move {
            let probed = known.get_or_try_init(|| async {
                let era = Box::pin(probe::probe(&children)).await?;
                tracing::info!(?era, "the upstream's era is known");
                Ok(era)
            });
            probed.await.copied()
        });
        let gone = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);
        probing.await.map_err(|_| gone)?
    }

    /// Asks a process for the era, whatever is known or configured. Dropped before it resolves, the
    /// asking goes on, and ends the process that was asked.
    pub(super) async fn probe(&self) -> Result<Era, Failure> {
        let children = Arc::clone(&self.children);
        let asking = async move { Box::pin(probe::probe(&children)).await };
        let gone = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);
        self.services.spawn(asking).await.map_err(|_| gone)?
    }

    pub(super) fn begin(&self, era: Era, outgoing: Outgoing) -> Exchange {
        exchange::begin(Arc::clone(&self.children), era, outgoing)
    }

    pub(super) fn listen(&self, era: Option<Era>, wish: Wish) -> Listening {
        listen::listen(Arc::clone(&self.children), era, wish)
    }

    pub(super) fn tools(&self) -> &Cache<Tools> {
        &self.children.tools
    }

    /// What a legacy server said of itself when one of the caller's children began. If there is
    /// none, one is started that the caller's calls will use.
    pub(super) async fn described(
        &self,
        caller: [u8; 16],
        capabilities: &str,
    ) -> Result<Arc<Discovered>, NoSession> {
        let channel = match self.children.any_of(caller) {
            Some(channel) => channel,
            None => {
                self.children
                    .get(&Key::new(Era::Legacy, caller, capabilities), Asks::Never)
                    .await?
            }
        };
        let described = channel.described.get().cloned();
        let silent = Failure::new(Reason::UpstreamInvalid, SideEffect::None);
        described.ok_or(NoSession::Failed(silent))
    }

    /// A session for one legacy client, with a process of its own; its id.
    pub(super) async fn open_session(
        &self,
        caller: [u8; 16],
    ) -> Result<(Box<str>, Arc<Session>), Failure> {
        self.sessions.open(&self.children, caller).await
    }

    pub(super) fn session(&self, id: &str, caller: [u8; 16]) -> Option<Arc<Session>> {
        self.sessions.get(id, caller)
    }

    /// True after five quick deaths in a row, until a process answers again.
    pub(super) fn cannot_run(&self) -> bool {
        self.children.nursery.health().cannot_run()
    }

    /// Ends every process, within a few seconds. Nothing is started afterwards.
    pub(super) async fn stop(&self) {
        self.children.stop(STOP_PATIENCE).await;
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Ends what is unused, and tries again what could not be run: whoever routes by readiness sends no
/// call that would.
async fn keep_house(children: Arc<Children>, sessions: Arc<Sessions>, stop: CancellationToken) {
    let mut round = tokio::time::interval(ROUND);
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(round.tick()).await.is_some() {
        children.close_unused(children::IDLE);
        sessions.close_unused();
        let is_due = {
            let health = children.nursery.health();
            health.cannot_run() && health.pause(Instant::now()).is_zero()
        };
        if is_due && let Some(Ok(era)) = stop.run_until_cancelled(probe::probe(&children)).await {
            children.nursery.health().answered();
            tracing::info!(?era, "the server can be run again");
        }
    }
}
