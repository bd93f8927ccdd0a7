//! The start and the end of a line to the server: the one difference between a program and HTTP+SSE.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::upstream::credentials::Credentials;
use crate::upstream::line::health::LineHealth;
use crate::upstream::line::writer::{LineListener, LineWriter};
use crate::upstream::no_session::SessionError;
use crate::upstream::pool::SessionPermit;
use crate::upstream::sse::Dialer;
use crate::upstream::stdio;
use crate::upstream::stdio::child::ProcessLauncher;

#[derive(Debug)]
pub(in crate::upstream) enum LineSource {
    /// A process for each line.
    Program(ProcessLauncher),
    /// An event stream for each line.
    Sse(Dialer),
}

impl LineSource {
    /// Starts a line, which keeps the permit until nothing is left of the line. The credentials are those of
    /// the caller that will use it.
    pub(super) async fn start<E: LineListener>(
        &self,
        permit: SessionPermit,
        credentials: Option<&Credentials>,
        listener: impl FnOnce(LineWriter) -> Arc<E>,
    ) -> Result<Arc<E>, SessionError> {
        match self {
            Self::Program(launcher) => Ok(launcher.start(permit, listener).await?),
            Self::Sse(dialer) => dialer.start(permit, credentials, listener).await,
        }
    }

    /// Returns `true` if a program cannot be run: it has died quickly five times in a row, and no process has
    /// answered since. A server with an address is watched by its own container.
    pub(super) fn cannot_run(&self) -> bool {
        match self {
            Self::Program(launcher) => launcher.health().cannot_run(),
            Self::Sse(_) => false,
        }
    }

    /// Returns `true` if a program that could not be run may be tried again now.
    pub(super) fn is_to_be_tried(&self) -> bool {
        self.cannot_run() && self.health().pause(Instant::now()).is_zero()
    }

    /// The health of the server. Do not hold the guard across other work.
    pub(super) fn health(&self) -> MutexGuard<'_, LineHealth> {
        match self {
            Self::Program(launcher) => launcher.health(),
            Self::Sse(dialer) => dialer.health(),
        }
    }

    pub(super) fn services(&self) -> &TaskTracker {
        match self {
            Self::Program(launcher) => &launcher.services,
            Self::Sse(dialer) => &dialer.services,
        }
    }

    /// Cancelled to end every line, also one that is being started.
    pub(super) fn stop(&self) -> &CancellationToken {
        match self {
            Self::Program(launcher) => &launcher.stop,
            Self::Sse(dialer) => &dialer.stop,
        }
    }

    /// Returns the time that the end of all lines may take.
    pub(super) fn stop_patience(&self) -> Duration {
        match self {
            Self::Program(_) => stdio::STOP_PATIENCE,
            // A stream ends when its connection is closed, and leaves no process that could take time.
            Self::Sse(_) => Duration::ZERO,
        }
    }
}
