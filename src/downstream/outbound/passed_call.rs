//! A call that raincheck sends progress of its own, and what ends the call if its server does not: such progress must keep
//! no client waiting for good.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::telemetry::calls;

/// Upper bound of the time in which a server accepts the notification that no client waits.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A call that passes.
pub(in crate::downstream) struct PassedCall {
    id: Box<RawValue>,
    tool: Box<str>,
    began: Instant,
    deadline: Instant,
    /// One future, which is polled only if it was woken: each event that passes asks for it, and what it waits for is
    /// shared by all threads.
    must_end: FuturesUnordered<BoxFuture<'static, Reason>>,
    /// The notification to the server that no client waits, and the tracker that runs it.
    stop: Option<(TaskTracker, BoxFuture<'static, ()>)>,
}

impl PassedCall {
    /// A call that begins now. `drained`: cancelled at the end of a drain.
    pub(in crate::downstream) fn begin(
        id: &RawValue,
        tool: &str,
        longest: Duration,
        drained: CancellationToken,
    ) -> Self {
        let began = Instant::now();
        let deadline = began + longest;
        let must_end = async move {
            tokio::select! {
                () = drained.cancelled() => Reason::Shutdown,
                () = sleep_until(deadline) => Reason::Deadline,
            }
        };
        Self {
            id: id.to_owned(),
            tool: tool.into(),
            began,
            deadline,
            must_end: FuturesUnordered::from_iter([must_end.boxed()]),
            stop: None,
        }
    }

    /// Sets the notification for a server that does not take the end of a connection for the end of a call: `stop`
    /// sends it.
    pub(in crate::downstream) fn stopped_by(
        self,
        jobs: TaskTracker,
        stop: BoxFuture<'static, ()>,
    ) -> Self {
        let stop = Some((jobs, stop));
        Self { stop, ..self }
    }

    pub(in crate::downstream) fn id(&self) -> &RawValue {
        &self.id
    }

    pub(in crate::downstream) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Resolves once: raincheck ends the call, and why. Not polled again after that.
    pub(super) fn poll_must_end(&mut self, context: &mut Context<'_>) -> Poll<Reason> {
        match self.must_end.poll_next_unpin(context) {
            Poll::Ready(Some(reason)) => Poll::Ready(reason),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Resolves to the answer when raincheck ends the call.
    pub(in crate::downstream) async fn ended(mut self) -> String {
        let reason = poll_fn(|context| self.poll_must_end(context)).await;
        self.fail(reason)
    }

    /// Returns raincheck's own answer. Operators are notified of it, and the server of an end that is not its own.
    pub(super) fn fail(&mut self, reason: Reason) -> String {
        let failure = Failure::new(reason, SideEffect::Unknown);
        calls::failed(&self.tool, &failure, Instant::now() - self.began);
        let gave_up = matches!(reason, Reason::Deadline | Reason::Shutdown);
        if let Some((jobs, stop)) = self.stop.take().filter(|_| gave_up) {
            // In a job: the client's answer does not wait until the server has taken the notification.
            jobs.spawn(timeout(STOP_PATIENCE, stop));
        }
        envelope::error(self.id.get(), &failure.to_error().to_json())
    }
}
