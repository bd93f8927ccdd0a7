//! One call under way: from the first byte to the wrapped server to the last commit.
//!
//! A call starts plain, with nothing stored; it may become kept (a record in the store), parked
//! (unannounced, waiting for a retry) or announced (a task that the client knows).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::call::{Announce, Call, grace};
use super::carried::Carrying;
use super::leg;
use super::outcome;
use super::seat::{Answer, Answered, Seat};
use super::state::Runner;
use super::turn::{Places, Turn};
use super::watch::Watch;
use crate::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::{Fence, TaskId};
use crate::task::policy::{InputWhen, Plan};
use crate::task::state::{Digest, Leg, Task};
use crate::upstream::{self, Exchange, Forwarded, Outgoing, Pin, UpstreamError};

mod begun;
mod claimed;
mod ending;
mod heard;
mod kept;
mod pending;
mod queued;
mod relayed;
mod rounds;
mod window;
mod yielded;

pub(super) use begun::{Begun, Claimed};
use begun::{Waiting, not_created};
use pending::{NextLeg, PendingProgress};

/// Questions that a server asks together are shown together: after the first, so long for more.
const GATHER: Duration = Duration::from_millis(50);

pub(super) struct Carrier {
    runner: Arc<Runner>,
    call: Call,
    /// The client that waits for the answer; nobody once it was answered.
    seat: Option<Seat>,
    exchange: Option<Exchange>,
    kept: Option<Kept>,
    /// Whether a leg may be at the server. It is, while there is an exchange.
    turn: Turn,
    /// When to look how long the queue before this call is, for whoever polls.
    look_ahead: Option<Instant>,
    /// When it may be left to others once more, where the store did not take it.
    hand_over_at: Instant,
    /// The end of the grace window, while the answer may still be plain.
    window: Option<Instant>,
    /// The store did not take the task at the end of the window.
    window_failed: bool,
    /// When the call is given up, whatever it waits for.
    deadline: Instant,
    /// Questions of a legacy server that came before there was a record, and when to show them.
    asked: Vec<upstream::Question>,
    gather: Option<Instant>,
    /// What the client says to questions that were relayed to it.
    answered: Option<mpsc::Receiver<Answered>>,
    progress: PendingProgress,
    /// When to write down where the call can be resumed.
    resumable: Option<Instant>,
    /// When to read the record again, where a change could not be read or an answer not be sent.
    look_again: Option<Instant>,
    next_leg: NextLeg,
    /// Another process sent the call: of its request only what is stored is known.
    adopted: bool,
    /// The server made a task of its own of the call, which is followed to its end.
    follows: bool,
    carried: Arc<OnceLock<TaskId>>,
    /// The call stands for a claim, and has its record from the start.
    claimed: Option<Claimed>,
    /// Who waits to hear that it has.
    begun: Option<Waiting>,
    /// The client that made the call, for what no record keeps.
    first: Option<oneshot::Sender<UpstreamError>>,
}

/// The record of this call, as last seen.
struct Kept {
    loaded: Loaded,
    /// As whom this carrier speaks; another fence in the record is another owner's.
    fence: Fence,
    /// The leg that is carried.
    leg: Leg,
    charge: Charge,
    /// The client's own session, which outlives its client's DELETE.
    _session: Option<TaskTrackerToken>,
}

impl Kept {
    fn new(loaded: Loaded, charge: Charge, pin: Option<&Pin>) -> Self {
        let (fence, leg) = (loaded.task.fence, loaded.task.leg);
        Self {
            loaded,
            fence,
            leg,
            charge,
            _session: pin.and_then(Pin::keep),
        }
    }
}

/// What is had before a record says that this replica carries its task: no change is missed, and
/// the reconcile leaves it alone.
pub(super) struct Charge {
    watch: Watch,
    carrying: Carrying,
}

impl Charge {
    pub(super) fn of(runner: &Runner, task: &Task) -> Self {
        Self {
            watch: runner.watches.watch(vec![task.id]),
            carrying: runner.carried.enter(task.id, task.caller),
        }
    }
}

enum Flow {
    Continue,
    Done,
}

/// What the loop woke for.
enum Woke {
    Upstream(Option<upstream::Event>),
    /// The call has its turn.
    Turn(Places),
    LookAhead,
    /// The drain begins, and another replica may send the call sooner.
    Draining,
    Changed,
    NextLeg,
    /// The client cancels, and the store is away.
    Stopped,
    Resumable,
    Gone,
    Window,
    Gathered,
    Answered(Answered),
    ProgressDue,
    Due,
    Halted,
}

impl Carrier {
    /// A new call with a client that waits.
    pub(super) fn for_client(
        runner: Arc<Runner>,
        call: Call,
        mut seat: Option<Seat>,
        turn: Turn,
    ) -> Self {
        let now = Instant::now();
        let window = match call.plan {
            Plan::Auto { window_ms, .. } => Some(now + Duration::from_millis(window_ms)),
            // Its questions come before its task, also where the server has to be started first.
            Plan::Always {
                input: InputWhen::BeforeTask,
            } => Some(now + runner.upstream.start_allowance() + grace(&call)),
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
            answered: seat.as_mut().and_then(Seat::take_answered),
            seat,
            exchange: None,
            kept: None,
            turn,
            look_ahead: None,
            hand_over_at: now,
            window,
            window_failed: false,
            deadline,
            asked: Vec::new(),
            gather: None,
            progress: PendingProgress::default(),
            resumable: None,
            look_again: None,
            next_leg: NextLeg::default(),
            adopted: false,
            follows: false,
            carried: Arc::default(),
            claimed: None,
            begun: None,
            first: None,
        }
    }

    /// A leg that the record says is this replica's to send, now or in its turn: the next of a
    /// modern call whose questions are answered, or what a lost owner left. No client waits.
    pub(super) fn dispatched(
        runner: Arc<Runner>,
        loaded: Loaded,
        (charge, turn): (Charge, Turn),
        era: Era,
        request: &Bytes,
        from: Forwarded,
    ) -> Result<Self, StoreError> {
        let outgoing = leg::next(request, &loaded.task, from)?;
        Ok(Self {
            look_ahead: turn.waits().then(Instant::now),
            turn,
            ..Self::for_record(runner, loaded, charge, era, outgoing)
        })
    }

    /// A call that a lost owner sent and that still runs at the server.
    pub(super) fn adopted(
        runner: Arc<Runner>,
        loaded: Loaded,
        charge: Charge,
        exchange: Exchange,
    ) -> Self {
        let outgoing = Outgoing::adopted(*loaded.task.caller.as_bytes(), "{}".into());
        Self {
            exchange: Some(exchange),
            adopted: true,
            ..Self::for_record(runner, loaded, charge, Era::Legacy, outgoing)
        }
    }

    fn for_record(
        runner: Arc<Runner>,
        loaded: Loaded,
        charge: Charge,
        era: Era,
        outgoing: Outgoing,
    ) -> Self {
        let task = &loaded.task;
        let left = task.deadline_ms.saturating_sub(runner.ledger.now_ms());
        let carried = Arc::new(OnceLock::from(task.id));
        let call = Call {
            caller: task.caller,
            era,
            face: Era::Modern,
            outgoing,
            rule: runner.rules.for_tool(&task.name).0.clone(),
            plan: Plan::Held,
            announce: Announce::Task,
            progress_token: None,
            digest: Digest::of(&[]),
            repeatable: false,
            listed: false,
            session: None,
        };
        Self {
            runner,
            call,
            seat: None,
            exchange: None,
            kept: Some(Kept::new(loaded, charge, None)),
            // A call that another replica sent is at the server already, and counted there.
            turn: Turn::Over,
            look_ahead: None,
            hand_over_at: Instant::now(),
            window: None,
            window_failed: false,
            deadline: Instant::now() + Duration::from_millis(left),
            asked: Vec::new(),
            gather: None,
            answered: None,
            progress: PendingProgress::default(),
            resumable: None,
            look_again: None,
            next_leg: NextLeg::default(),
            adopted: false,
            follows: false,
            carried,
            claimed: None,
            begun: None,
            first: None,
        }
    }

    pub(super) fn carried(&self) -> Arc<OnceLock<TaskId>> {
        Arc::clone(&self.carried)
    }

    pub(super) async fn run(mut self) {
        if let Some(begun) = self.begun.take() {
            if !self.begin(begun).await {
                return;
            }
        } else if matches!(
            self.call.plan,
            Plan::Always {
                input: InputWhen::InTask
            }
        ) {
            // Durable first: a client that never heard of the task left nothing running.
            if let Err(why) = self.keep(Vec::new(), true).await {
                let answer = not_created(&why, SideEffect::None);
                self.answer(answer).await;
                return;
            }
            self.announce().await;
        }
        let mut flow = Flow::Continue;
        if self.adopted {
            // What was answered and not passed on goes out again, under the same name.
            flow = self.deliver().await;
        } else if !self.turn.waits() {
            self.open();
        }
        while let Flow::Continue = flow {
            flow = self.turn().await;
        }
    }

    fn open(&mut self) {
        hit(Point::SentBefore);
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
            Woke::Turn(places) => self.on_turn(places).await,
            Woke::LookAhead => self.on_look_ahead(),
            Woke::Halted => self.on_halted().await,
            Woke::Draining => self.on_draining().await,
            Woke::Changed => self.on_change().await,
            Woke::NextLeg => self.next_leg(),
            Woke::Stopped => self.on_stopped().await,
            Woke::Resumable => self.commit_resume_point().await,
            Woke::Gone => self.on_gone().await,
            Woke::Window => self.on_window().await,
            Woke::Gathered => self.on_gathered().await,
            Woke::Answered(answered) => self.on_answered(answered).await,
            Woke::ProgressDue => self.commit_progress().await,
            Woke::Due => self.on_due().await,
        }
    }

    /// Waits for whatever comes first. Each branch is cancel safe: the exchange's stream, the
    /// watch and the cell lose nothing when another branch wins.
    async fn wake(&mut self) -> Woke {
        let due = self.due();
        let progress_due = self.progress_due();
        let (window, gather, resumable) = (self.window, self.gather, self.resumable);
        let (look_again, look_ahead) = (self.look_again, self.look_ahead);
        let (hand_over_at, next_leg) = (self.hand_over_at, self.next_leg.at);
        let may_hand_over = self.turn.waits() && self.may_hand_over();
        let tool = self.call.outgoing.name.as_deref().unwrap_or_default();
        let (runner, turn) = (&self.runner, &mut self.turn);
        let (exchange, answered) = (self.exchange.as_mut(), self.answered.as_mut());
        let charge = self.kept.as_ref().map(|kept| &kept.charge);
        let seat = self.seat.as_ref();
        tokio::select! {
            biased;
            () = runner.halt.cancelled() => Woke::Halted,
            () = until_gone(seat) => Woke::Gone,
            () = stopped(charge) => Woke::Stopped,
            () = changed(charge) => Woke::Changed,
            () = draining(runner, hand_over_at), if may_hand_over => Woke::Draining,
            places = turn.come(&runner.gates, tool) => Woke::Turn(places),
            event = next_event(exchange) => Woke::Upstream(event),
            answered = next_answer(answered) => Woke::Answered(answered),
            () = at(gather) => Woke::Gathered,
            () = at(window) => Woke::Window,
            () = at(progress_due) => Woke::ProgressDue,
            () = at(resumable) => Woke::Resumable,
            () = at(look_again) => Woke::Changed,
            () = at(next_leg) => Woke::NextLeg,
            () = at(look_ahead) => Woke::LookAhead,
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
        self.kept.as_ref()?;
        Some(self.progress.not_before.unwrap_or_else(Instant::now))
    }
}

async fn draining(runner: &Runner, not_before: Instant) {
    runner.draining.cancelled().await;
    tokio::time::sleep_until(not_before).await;
}

async fn until_gone(seat: Option<&Seat>) {
    match seat {
        Some(seat) => seat.gone().await,
        None => std::future::pending().await,
    }
}

async fn changed(charge: Option<&Charge>) {
    match charge {
        Some(charge) => {
            charge.watch.changed().await;
        }
        None => std::future::pending().await,
    }
}

async fn stopped(charge: Option<&Charge>) {
    match charge {
        Some(charge) => charge.carrying.stop.notified().await,
        None => std::future::pending().await,
    }
}

async fn next_event(exchange: Option<&mut Exchange>) -> Option<upstream::Event> {
    match exchange {
        Some(exchange) => exchange.events.next().await,
        None => std::future::pending().await,
    }
}

async fn next_answer(answered: Option<&mut mpsc::Receiver<Answered>>) -> Answered {
    let next = match answered {
        Some(answered) => answered.recv().await,
        None => None,
    };
    match next {
        Some(answered) => answered,
        None => std::future::pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
