//! How a line to the server is started and ended: all that tells the connectors apart.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::upstream::channel::health::LineHealth;
use crate::upstream::channel::writer::{LineListener, LineWriter};
use crate::upstream::no_session::NoSession;
use crate::upstream::sse::Dialer;
use crate::upstream::stdio;
use crate::upstream::stdio::child::Nursery;

#[derive(Debug)]
pub(in crate::upstream) enum LineSource {
    /// A process for each line.
    Program(Nursery),
    /// An event stream for each line.
    Sse(Dialer),
}

impl LineSource {
    /// Starts a line; it holds the permit until nothing is left of it. The credentials are those of
    /// the caller whose line it will be.
    pub(super) async fn start<E: LineListener>(
        &self,
        permit: OwnedSemaphorePermit,
        credentials: Option<&HeaderValue>,
        listener: impl FnOnce(LineWriter) -> Arc<E>,
    ) -> Result<Arc<E>, NoSession> {
        match self {
            Self::Program(nursery) => Ok(nursery.start(permit, listener).await?),
            Self::Sse(dialer) => dialer.start(permit, credentials, listener).await,
        }
    }

    /// True after five quick deaths in a row, until a process answers again. A server that is
    /// elsewhere is its own container's matter.
    pub(super) fn cannot_run(&self) -> bool {
        match self {
            Self::Program(nursery) => nursery.health().cannot_run(),
            Self::Sse(_) => false,
        }
    }

    /// What could not be run may be tried again now.
    pub(super) fn is_to_be_tried(&self) -> bool {
        self.cannot_run() && self.health().pause(Instant::now()).is_zero()
    }

    /// Held for a moment only.
    pub(super) fn health(&self) -> MutexGuard<'_, LineHealth> {
        match self {
            Self::Program(nursery) => nursery.health(),
            Self::Sse(dialer) => dialer.health(),
        }
    }

    pub(super) fn services(&self) -> &TaskTracker {
        match self {
            Self::Program(nursery) => &nursery.services,
            Self::Sse(dialer) => &dialer.services,
        }
    }

    /// Ends every line, also one that is being started.
    pub(super) fn stop(&self) -> &CancellationToken {
        match self {
            Self::Program(nursery) => &nursery.stop,
            Self::Sse(dialer) => &dialer.stop,
        }
    }

    /// How long the end of all lines may take.
    pub(super) fn stop_patience(&self) -> Duration {
        match self {
            Self::Program(_) => stdio::STOP_PATIENCE,
            Self::Sse(_) => Duration::ZERO,
        }
    }
}
