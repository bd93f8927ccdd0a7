//! One call under way: from the first byte to the wrapped server to the last commit.
//!
//! The stage holds what is stored of the call, the dispatch holds the place of the current leg, and the table of
//! timers holds what happens later. Each event is handled to its end before the next event is taken.

use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission::Admittance;
use super::call::{CallSpec, ServerCall};
use super::call_claim::CallClaim;
use super::custody::{Custody, CustodyNews};
use super::given_up_claims::ClaimInWriting;
use super::leg;
use super::outcome;
use super::responder::{CallAnswer, RelayedAnswer};
use super::state::Runner;
use super::waiting::{TaskWhen, WaitingClient};
use crate::base::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::store::ledger::{CreateError, Loaded};
use crate::task::id::TaskId;
use crate::upstream::{Exchange, Forwarded, Seat, UpstreamError, UpstreamRequest};

mod claimed;
mod dispatch;
mod ending;
mod events;
mod given_up;
mod handover;
mod large_results;
mod open_round;
mod pending;
mod progress;
mod questions;
mod queued;
mod record;
mod record_terms;
mod recorded;
mod results;
mod rounds;
mod stage;
mod timers;
mod waits;
mod window;

use dispatch::{Arrival, Dispatch, LegOrigin};
use pending::PendingProgress;
pub(super) use record_terms::{ClaimedRecord, RecordTerms};
use stage::{CallStage, PlainCall, RecordedCall};
use timers::{Timer, Timers};
use waits::{ClientStep, Stop, news, next_answer, next_step, next_stop};

/// The first and the longest pause between the legs of a server that asks nothing, so that a long call costs few requests.
const PAUSE_MS: u64 = 1_000;
const PAUSE_MS_MAX: u64 = 10_000;

pub(super) struct Carrier {
    runner: Arc<Runner>,
    server: ServerCall,
    audience: Audience,
    stage: CallStage,
    dispatch: Dispatch,
    timers: Timers,
    progress: PendingProgress,
    /// The legs that the server ended without a question.
    empty_legs: u32,
    /// The id of the job that the call started at the server.
    job: Option<Box<str>>,
    /// The id of the record, as soon as there is one: it outlives a panic of the carrier.
    task_id: Arc<OnceLock<TaskId>>,
}

/// The client that receives events from the carrier directly. All other clients read the record.
enum Audience {
    /// The client that made the call, on its own connection.
    Client(Box<WaitingClient>),
    /// The client that made the call reads the record, and receives here a fact that no record keeps: the server
    /// refused its credentials.
    Maker(oneshot::Sender<UpstreamError>),
    /// No client: all clients that wait read the record.
    RecordReaders,
}

impl Audience {
    /// Returns the client that receives the server's messages from this carrier.
    fn client(&self) -> Option<&WaitingClient> {
        match self {
            Self::Client(client) => Some(client),
            Self::Maker(_) | Self::RecordReaders => None,
        }
    }
}

enum Flow {
    Continue,
    Done,
}

/// Why the carrier's loop woke.
enum Wakeup {
    /// The grace period of a drain is over.
    Halted,
    /// The client went away before it received an answer.
    Gone,
    /// The client, which waits, sent the same call again.
    SentAgain,
    /// The client cancels, and the store is away.
    Stopped,
    /// The record changed.
    Changed,
    /// The drain begins, and another replica may send the call sooner.
    Draining,
    Leg(Arrival),
    Answered(RelayedAnswer),
    Timer(Timer),
}

impl Wakeup {
    fn of(news: CustodyNews) -> Self {
        match news {
            CustodyNews::Stopped => Self::Stopped,
            CustodyNews::Changed => Self::Changed,
        }
    }
}

impl Carrier {
    /// A new call with a client that waits.
    pub(super) fn for_client(
        runner: Arc<Runner>,
        call: CallSpec,
        client: WaitingClient,
        admittance: Admittance,
    ) -> Box<Self> {
        let audience = Audience::Client(Box::new(client));
        Self::for_call(runner, call, audience, admittance.into())
    }

    /// A new call whose record comes first. All its clients follow the record, including the client that made
    /// the call.
    pub(super) fn for_claim(
        runner: Arc<Runner>,
        call: CallSpec,
        admittance: Admittance,
    ) -> Box<Self> {
        Self::for_call(runner, call, Audience::RecordReaders, admittance.into())
    }

    /// A call that passed until its client gave it up or sent it again. `client`: it waits still.
    pub(super) fn for_passed(
        runner: Arc<Runner>,
        call: CallSpec,
        client: Option<WaitingClient>,
        exchange: Exchange,
    ) -> Box<Self> {
        let dispatch = Dispatch::under_way(exchange, LegOrigin::Sent);
        let audience = client.map_or(Audience::RecordReaders, |client| {
            Audience::Client(Box::new(client))
        });
        Self::for_call(runner, call, audience, dispatch)
    }

    fn for_call(
        runner: Arc<Runner>,
        mut call: CallSpec,
        audience: Audience,
        dispatch: Dispatch,
    ) -> Box<Self> {
        let job = call.outgoing.job.take();
        call.outgoing.job = job.map(|job| runner.job_calls.share(job));
        let now = Instant::now();
        let when = audience.client().and_then(|client| client.terms.when);
        let (server, origin) = call.split();
        let mut timers = Timers::until(now + Duration::from_millis(server.rule.max_duration_ms));
        if let Some(when) = when {
            timers.arm(Timer::GraceWindow, now + when.latest());
        }
        if let Some(at) = audience.client().and_then(|client| client.terms.answer_at) {
            timers.arm(Timer::ClientsClock, at);
        }
        Box::new(Self {
            runner,
            server,
            audience,
            stage: CallStage::Plain(Box::new(PlainCall::new(origin))),
            dispatch,
            timers,
            progress: PendingProgress::default(),
            empty_legs: 0,
            job: None,
            task_id: Arc::default(),
        })
    }

    /// A leg that the record assigns to this replica, to send now or in its turn: the next leg of a modern
    /// call whose questions are answered, or a call that a lost owner left. No client waits.
    pub(super) fn dispatched(
        runner: Arc<Runner>,
        loaded: Loaded,
        (custody, admittance): (Custody, Admittance),
        era: Era,
        request: &Bytes,
        from: Forwarded,
    ) -> Result<Box<Self>, StoreError> {
        let outgoing = leg::next(request, &loaded.task, from)?;
        let recorded = RecordedCall::new(loaded, custody, None);
        let dispatch = admittance.into();
        let mut carrier = Self::for_record(runner, recorded, era, outgoing, dispatch);
        if carrier.dispatch.waits() {
            carrier.timers.arm(Timer::QueueMessage, Instant::now());
        }
        Ok(carrier)
    }

    /// A call that a lost owner sent and that still runs at the server.
    pub(super) fn adopted(
        runner: Arc<Runner>,
        loaded: Loaded,
        custody: Custody,
        exchange: Exchange,
        from: Forwarded,
    ) -> Box<Self> {
        let caller = *loaded.task.caller.as_bytes();
        let outgoing = UpstreamRequest::adopted(caller, "{}".into()).forwarding(from);
        let recorded = RecordedCall::new(loaded, custody, None);
        let dispatch = Dispatch::under_way(exchange, LegOrigin::Adopted);
        Self::for_record(runner, recorded, Era::Legacy, outgoing, dispatch)
    }

    fn for_record(
        runner: Arc<Runner>,
        recorded: RecordedCall,
        era: Era,
        outgoing: UpstreamRequest,
        dispatch: Dispatch,
    ) -> Box<Self> {
        let task = recorded.task();
        // The record does not contain the whole rule, so a call that was taken over follows this replica's rules.
        let rule = Arc::clone(runner.rules().for_tool(&task.name).0);
        // The replica that looked whether a client waits for the call may be lost.
        runner.cancel_if_abandoned(task.id, task.on_disconnect);
        Box::new(Self {
            timers: Timers::until(recorded.due(runner.ledger.now_ms())),
            task_id: Arc::new(OnceLock::from(task.id)),
            runner,
            server: ServerCall {
                era,
                outgoing: Arc::new(outgoing),
                rule,
            },
            audience: Audience::RecordReaders,
            stage: CallStage::Recorded(Box::new(recorded)),
            dispatch,
            progress: PendingProgress::default(),
            empty_legs: 0,
            job: None,
        })
    }

    pub(super) fn task_id(&self) -> Arc<OnceLock<TaskId>> {
        Arc::clone(&self.task_id)
    }

    pub(super) async fn run(mut self: Box<Self>) {
        // Boxed, because the future of the job would keep room for it until the end of the call.
        let begun = Box::pin(self.begin()).await;
        self.run_from(begun).await;
    }

    /// Keeps the call for the same call to collect it, and carries it to its end.
    pub(super) async fn run_kept(mut self: Box<Self>, claim: CallClaim, writing: ClaimInWriting) {
        let begun = Box::pin(self.keep(&claim, writing)).await;
        self.run_from(begun).await;
    }

    async fn run_from(mut self: Box<Self>, mut flow: Flow) {
        while let Flow::Continue = flow {
            let woken = self.wake().await;
            flow = self.on_woken(woken).await;
        }
    }

    async fn begin(&mut self) -> Flow {
        if self.is_task_at_once() {
            // The record comes first: if its client never hears of the task, nothing runs at the server.
            let recorded = self.record(Vec::new(), RecordTerms::of_call(true)).await;
            if let Err(why) = recorded {
                self.answer(not_created(&why, self.effect_of(SideEffect::None)));
                return Flow::Done;
            }
        }
        if self.dispatch.origin() == Some(LegOrigin::Adopted) {
            // An answer that was not passed on is sent again, under the same name.
            return self.deliver().await;
        }
        self.open();
        Flow::Continue
    }

    fn is_task_at_once(&self) -> bool {
        let client = self.audience.client();
        let is_at_once = client.is_some_and(|it| it.terms.when == Some(TaskWhen::AtOnce));
        is_at_once && !self.stage.is_recorded()
    }

    /// Sends the leg, if it may go out.
    fn open(&mut self) {
        let Self {
            runner,
            server,
            dispatch,
            stage,
            ..
        } = self;
        let span = stage.span();
        dispatch.open(|seat| {
            hit(Point::SentBefore);
            if let Some(span) = span {
                span.sent();
            }
            let seat = seat.unwrap_or_else(|| Seat::anywhere(server.era));
            // The era may have become known only while the call waited for its seat.
            server.era = seat.era();
            runner.upstream.begin(seat, Arc::clone(&server.outgoing))
        });
    }

    /// Handles an event. A call spends its life waiting, so only what it waits with is in the future of its job; what handles
    /// an event is boxed.
    fn on_woken(&mut self, woken: Option<Wakeup>) -> BoxFuture<'_, Flow> {
        match woken {
            Some(woken) => Box::pin(self.on_wakeup(woken)),
            None => Box::pin(ready(Flow::Continue)),
        }
    }

    async fn on_wakeup(&mut self, woken: Wakeup) -> Flow {
        match woken {
            Wakeup::Halted => self.on_halted().await,
            Wakeup::Gone => self.on_gone().await,
            Wakeup::SentAgain => self.on_sent_again().await,
            Wakeup::Stopped => self.on_stopped().await,
            Wakeup::Changed => self.on_change().await,
            Wakeup::Draining => self.on_draining().await,
            Wakeup::Leg(Arrival::Permits(Ok(permits))) => self.on_permits(permits).await,
            Wakeup::Leg(Arrival::Permits(Err(end))) => {
                // The leg gets no seat, so its permits go to other calls before the end is handled.
                self.end_dispatch();
                self.on_upstream(end).await
            }
            Wakeup::Leg(Arrival::Event(Some(event))) => self.on_upstream(event).await,
            Wakeup::Leg(Arrival::Event(None)) => {
                let failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
                self.on_end(outcome::failed(&failure), CallAnswer::Failed(failure))
                    .await
            }
            Wakeup::Answered(answered) => self.on_answered(answered).await,
            Wakeup::Timer(timer) => self.on_timer(timer).await,
        }
    }

    async fn on_timer(&mut self, timer: Timer) -> Flow {
        match timer {
            Timer::Gather => self.on_gathered().await,
            Timer::GraceWindow => self.on_window().await,
            Timer::Progress => self.commit_progress().await,
            Timer::ResumePoint => self.commit_resume_point().await,
            Timer::NextLeg => self.next_leg(),
            Timer::Requeue => self.requeue().await,
            Timer::QueueMessage => self.tell_queue(),
            // While this timer was armed, the loop did not check whether the drain has begun.
            Timer::HandOver => Flow::Continue,
            Timer::ClientsClock => self.on_clients_clock().await,
            Timer::Deadline => self.on_deadline().await,
        }
    }

    /// Waits for the next event of any source. Each branch is cancel safe: the exchange's stream, the queue, the
    /// watch and the responder lose nothing when another branch wins. Returns `None` if the client has received its
    /// answer, and there is nothing else to do.
    async fn wake(&mut self) -> Option<Wakeup> {
        self.forget_told();
        if let CallStage::Recorded(recorded) = &self.stage {
            // The shared clock may have moved.
            let due = recorded.due(self.runner.ledger.now_ms());
            self.timers.arm(Timer::Deadline, due);
        }
        let waits = self.dispatch.waits() && self.may_hand_over();
        let may_hand_over =
            self.timers.at(Timer::HandOver).is_none() && (waits || self.moves_at_once());
        let until = self.timers.next();
        let custody = self.stage.recorded().map(|recorded| &recorded.custody);
        let (presence, answers) = match &mut self.audience {
            Audience::Client(client) => {
                let (presence, answers) = client.responder.client();
                (Some(presence), Some(answers))
            }
            Audience::Maker(_) | Audience::RecordReaders => (None, None),
        };
        // The order decides between events that come together. A changed record comes before an event of the leg, so
        // that a carrier that is no longer the owner does not act on that event.
        let woken = tokio::select! {
            biased;
            stop = next_stop(&self.runner, may_hand_over) => match stop {
                // A change of the record comes before the drain: a cancel that the store did not take would be lost with
                // this carrier.
                Stop::Draining => news(custody).now_or_never().map_or(Wakeup::Draining, Wakeup::of),
                Stop::Halted => Wakeup::Halted,
            },
            step = next_step(presence) => match step {
                ClientStep::Told => return None,
                ClientStep::Gone => Wakeup::Gone,
                ClientStep::SentAgain => Wakeup::SentAgain,
            },
            news = news(custody) => Wakeup::of(news),
            arrival = self.dispatch.next() => Wakeup::Leg(arrival),
            answered = next_answer(answers) => Wakeup::Answered(answered),
            () = tokio::time::sleep_until(until) => {
                // If no timer is due, `expire` returns the deadline, so its time must not lie before `until`.
                Wakeup::Timer(self.timers.expire(Instant::now().max(until)))
            }
        };
        Some(woken)
    }

    /// Drops the client's queues once the client was notified of the task. A task may run for hours after that.
    fn forget_told(&mut self) {
        if let Audience::Client(client) = &self.audience
            && self.stage.is_recorded()
            && client.responder.is_over()
        {
            self.audience = Audience::RecordReaders;
        }
    }
}

/// Returns the answer for a client whose call can have no record.
fn not_created(why: &CreateError, effect: SideEffect) -> CallAnswer {
    match why {
        CreateError::Quota => CallAnswer::Failed(Failure::new(Reason::Quota, effect)),
        CreateError::Taken | CreateError::Store(_) => CallAnswer::StoreUnavailable(effect),
    }
}

#[cfg(test)]
mod tests {
    use super::Carrier;

    fn size_of_future<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_call_that_waits_is_small() {
        // Thousands of calls wait for hours. What only a client, a queue or an event needs is boxed.
        let sizes = (size_of::<Carrier>(), size_of_future(Carrier::run));
        assert!(sizes.0 <= 256 && sizes.1 <= 512, "{sizes:?}");
    }
}
