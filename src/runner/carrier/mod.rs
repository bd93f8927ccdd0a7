//! One call under way: from the first byte to the wrapped server to the last commit.
//!
//! A call starts plain, with nothing stored; it may become kept (a record in the store), parked
//! (unannounced, waiting for a retry) or announced (a task that the client knows).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use tracing::warn;

use super::outcome;
use super::seat::{Answer, Seat};
use super::watch::Watch;
use super::{Call, Runner, leg};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::policy::{InputWhen, Plan};
use crate::task::state::{Digest, Progress};
use crate::upstream::{self, Exchange};

mod ending;
mod heard;
mod kept;

/// Questions that a server asks together are shown together: after the first, so long for more.
const GATHER: Duration = Duration::from_millis(50);

pub(super) struct Carrier {
    runner: Arc<Runner>,
    call: Call,
    /// The client that waits for the answer; nobody once it was answered.
    seat: Option<Seat>,
    exchange: Option<Exchange>,
    kept: Option<Kept>,
    /// The end of the grace window, while the answer may still be plain.
    window: Option<Instant>,
    /// When the call is given up, whatever it waits for.
    deadline: Instant,
    /// Questions of a legacy server that came before there was a record, and when to show them.
    asked: Vec<upstream::Question>,
    gather: Option<Instant>,
    progress: PendingProgress,
    carried: Arc<OnceLock<TaskId>>,
}

/// The record of this call, as last seen.
struct Kept {
    loaded: Loaded,
    watch: Watch,
}

/// The newest progress, committed at most once a poll interval.
#[derive(Default)]
struct PendingProgress {
    newest: Option<(Option<Box<str>>, Option<Progress>)>,
    committed: Option<Instant>,
}

enum Flow {
    Continue,
    Done,
}

/// What the loop woke for.
enum Woke {
    Upstream(Option<upstream::Event>),
    Changed,
    Gone,
    Window,
    Gathered,
    ProgressDue,
    Due,
    Halted,
}

impl Carrier {
    /// A new call with a client that waits.
    pub(super) fn for_client(runner: Arc<Runner>, call: Call, seat: Seat) -> Self {
        let now = Instant::now();
        let window = match call.plan {
            Plan::Auto { window_ms, .. } => Some(now + Duration::from_millis(window_ms)),
            Plan::Always {
                input: InputWhen::BeforeTask,
            } => Some(now + Duration::from_millis(call.rule.grace_window_ms)),
            Plan::Always {
                input: InputWhen::InTask,
            }
            | Plan::Held
            | Plan::Refuse => None,
        };
        let deadline = now + Duration::from_millis(call.rule.max_duration_ms);
        Self {
            runner,
            call,
            seat: Some(seat),
            exchange: None,
            kept: None,
            window,
            deadline,
            asked: Vec::new(),
            gather: None,
            progress: PendingProgress::default(),
            carried: Arc::default(),
        }
    }

    /// The next leg of a modern call whose questions are answered. Nobody waits.
    pub(super) async fn for_next_leg(
        runner: Arc<Runner>,
        loaded: Loaded,
        credentials: Option<hyper::header::HeaderValue>,
    ) -> Result<Self, StoreError> {
        let stored = runner.ledger.load_request(loaded.task.id).await?;
        let stored = stored.ok_or(StoreError::Corrupt("a task without its request"))?;
        let outgoing = leg::next(&stored, &loaded.task, credentials)?;
        let watch = runner.watches.watch(vec![loaded.task.id]);
        let left = loaded
            .task
            .deadline_ms
            .saturating_sub(runner.ledger.now_ms());
        let carried = Arc::new(OnceLock::from(loaded.task.id));
        let call = Call {
            caller: loaded.task.caller,
            era: Era::Modern,
            outgoing,
            rule: runner.rules.for_tool(&loaded.task.name).0.clone(),
            plan: Plan::Held,
            progress_token: None,
            digest: Digest::of(&[]),
        };
        Ok(Self {
            runner,
            call,
            seat: None,
            exchange: None,
            kept: Some(Kept { loaded, watch }),
            window: None,
            deadline: Instant::now() + Duration::from_millis(left),
            asked: Vec::new(),
            gather: None,
            progress: PendingProgress::default(),
            carried,
        })
    }

    pub(super) fn carried(&self) -> Arc<OnceLock<TaskId>> {
        Arc::clone(&self.carried)
    }

    pub(super) async fn run(mut self) {
        if matches!(
            self.call.plan,
            Plan::Always {
                input: InputWhen::InTask
            }
        ) {
            // Durable first: a client that never heard of the task left nothing running.
            if self.keep(Vec::new(), true).await.is_err() {
                self.answer(Answer::StoreUnavailable).await;
                return;
            }
            self.announce().await;
        }
        self.open();
        while let Flow::Continue = self.turn().await {}
    }

    fn open(&mut self) {
        let outgoing = self.call.outgoing.clone();
        self.exchange = Some(self.runner.upstream.begin(self.call.era, outgoing));
    }

    async fn turn(&mut self) -> Flow {
        match self.wake().await {
            Woke::Upstream(Some(event)) => self.on_upstream(event).await,
            Woke::Upstream(None) => {
                let failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
                self.on_end(outcome::failed(failure), Answer::Failed(failure))
                    .await
            }
            Woke::Changed => self.on_change().await,
            Woke::Gone => self.on_gone().await,
            Woke::Window => self.on_window().await,
            Woke::Gathered => self.on_gathered().await,
            Woke::ProgressDue => self.commit_progress().await,
            Woke::Due => self.on_due().await,
            Woke::Halted => self.give_up(Reason::Shutdown).await,
        }
    }

    /// Waits for whatever comes first. Each branch is cancel safe: the exchange's stream, the
    /// watch and the cell lose nothing when another branch wins.
    async fn wake(&mut self) -> Woke {
        let due = self.due();
        let progress_due = self.progress_due();
        let (window, gather) = (self.window, self.gather);
        let exchange = self.exchange.as_mut();
        let watch = self.kept.as_ref().map(|kept| &kept.watch);
        let seat = self.seat.as_ref();
        tokio::select! {
            biased;
            () = self.runner.halt.cancelled() => Woke::Halted,
            () = until_gone(seat) => Woke::Gone,
            () = changed(watch) => Woke::Changed,
            event = next_event(exchange) => Woke::Upstream(event),
            () = at(gather) => Woke::Gathered,
            () = at(window) => Woke::Window,
            () = at(progress_due) => Woke::ProgressDue,
            () = tokio::time::sleep_until(due) => Woke::Due,
        }
    }

    fn due(&self) -> Instant {
        let Some(kept) = &self.kept else {
            return self.deadline;
        };
        let Some(due_ms) = kept.loaded.task.due_ms() else {
            return self.deadline;
        };
        let left = due_ms.saturating_sub(self.runner.ledger.now_ms());
        Instant::now() + Duration::from_millis(left)
    }

    fn progress_due(&self) -> Option<Instant> {
        self.progress.newest.as_ref()?;
        let kept = self.kept.as_ref()?;
        let pause = Duration::from_millis(kept.loaded.task.poll_interval_ms);
        Some(
            self.progress
                .committed
                .map_or_else(Instant::now, |last| last + pause),
        )
    }

    /// The grace window is over: from here on it is a task.
    async fn on_window(&mut self) -> Flow {
        self.window = None;
        if self.kept.is_some() || self.gather.is_some() {
            return Flow::Continue;
        }
        match self.keep(Vec::new(), true).await {
            Ok(()) => self.announce().await,
            // The call stays held on this connection: it runs already.
            Err(why) => warn!(error = %why, "a call could not become a task and stays held"),
        }
        Flow::Continue
    }
}

async fn until_gone(seat: Option<&Seat>) {
    match seat {
        Some(seat) => seat.gone().await,
        None => std::future::pending().await,
    }
}

async fn changed(watch: Option<&Watch>) {
    match watch {
        Some(watch) => {
            watch.changed().await;
        }
        None => std::future::pending().await,
    }
}

async fn next_event(exchange: Option<&mut Exchange>) -> Option<upstream::Event> {
    match exchange {
        Some(exchange) => exchange.events.next().await,
        None => std::future::pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
