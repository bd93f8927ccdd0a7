//! One call under way: from the first byte to the wrapped server to the last commit.
//!
//! A call starts plain, with nothing stored; it may become kept (a record in the store), parked
//! (unannounced, waiting for a retry) or announced (a task that the client knows).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::outcome::{self, Meaning};
use super::seat::{Answer, Reply, Seat};
use super::watch::Watch;
use super::{Call, Runner, leg, not_sent};
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::json::{Object, Writer, set};
use crate::mcp::version::Era;
use crate::mcp::{input, result};
use crate::store::StoreError;
use crate::store::ledger::{Loaded, NotApplied, Tried};
use crate::task::id::{Fence, TaskId};
use crate::task::machine::{Effect, Event, OwnerEvent, Step, step};
use crate::task::policy::{InputWhen, Plan};
use crate::task::state::{Leg, Progress, Task};
use crate::task::view;
use crate::upstream::{self, Exchange};

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
            digest: crate::task::state::Digest::of(&[]),
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

    async fn on_upstream(&mut self, event: upstream::Event) -> Flow {
        match event {
            upstream::Event::Progress(params) => self.on_progress(&params).await,
            upstream::Event::Log(params) => {
                if self.kept.is_none() {
                    self.relay("notifications/message", params.get()).await;
                }
                Flow::Continue
            }
            upstream::Event::Question(question) => self.on_question(question).await,
            upstream::Event::Result(result) => self.on_result(result).await,
            upstream::Event::Error(error) => {
                let answer = Answer::Error(error.clone());
                self.on_end(outcome::of_error(error), answer).await
            }
            upstream::Event::Failed(failure) => {
                self.on_end(outcome::failed(failure), Answer::Failed(failure))
                    .await
            }
        }
    }

    async fn on_progress(&mut self, params: &RawValue) -> Flow {
        if self.kept.is_some() {
            self.progress.newest = read_progress(params);
        } else if let Some(token) = self.call.progress_token.clone() {
            // The server echoes raincheck's token; the client knows its own.
            if let Ok(params) = set(params.get(), "progressToken", token.get()) {
                self.relay("notifications/progress", &params).await;
            }
        }
        Flow::Continue
    }

    async fn relay(&mut self, method: &str, params: &str) {
        if let Some(seat) = &self.seat {
            let mut out = Writer::with_capacity(params.len() + 64);
            out.str("jsonrpc", "2.0")
                .str("method", method)
                .raw("params", params);
            seat.send(Reply::Relay(out.end()), self.deadline).await;
        }
    }

    /// A legacy server asks in the middle of its call.
    async fn on_question(&mut self, question: upstream::Question) -> Flow {
        if self.kept.is_some() {
            return self.ask(question).await;
        }
        self.asked.push(question);
        self.gather.get_or_insert_with(|| Instant::now() + GATHER);
        Flow::Continue
    }

    /// The first questions came before there was a record: it is made now, as a task that the
    /// client hears of, or parked until the client comes back with the answers.
    async fn on_gathered(&mut self) -> Flow {
        self.gather = None;
        let announced = matches!(
            self.call.plan,
            Plan::Auto {
                input: InputWhen::InTask,
                ..
            }
        );
        let mut events = Vec::with_capacity(self.asked.len());
        for question in std::mem::take(&mut self.asked) {
            match input::request_of_legacy(&question.method, question.params.as_deref()) {
                Ok(request) => events.push(OwnerEvent::Asked {
                    origin: (&*question.id).into(),
                    request,
                }),
                Err(_) => self.refuse(&question).await,
            }
        }
        if self.keep(events, announced).await.is_err() {
            self.cancel_upstream().await;
            self.answer(Answer::StoreUnavailable).await;
            return Flow::Done;
        }
        self.announce().await;
        Flow::Continue
    }

    async fn ask(&mut self, question: upstream::Question) -> Flow {
        let request = input::request_of_legacy(&question.method, question.params.as_deref());
        let Ok(request) = request else {
            self.refuse(&question).await;
            return Flow::Continue;
        };
        let asked = OwnerEvent::Asked {
            origin: (&*question.id).into(),
            request,
        };
        match self.apply(asked).await {
            Ok(_) => Flow::Continue,
            Err(NotApplied::Rejected(..)) => {
                self.refuse(&question).await;
                self.on_change().await
            }
            Err(NotApplied::Gone) => self.lost().await,
            Err(NotApplied::Store(_)) => {
                self.refuse(&question).await;
                Flow::Continue
            }
        }
    }

    async fn refuse(&mut self, question: &upstream::Question) {
        if let Some(exchange) = &self.exchange {
            let error = RpcError::internal("This question cannot be put to the client");
            let answer = upstream::Answer::Refused(error.to_json().into());
            let _ = exchange.control.answer(&question.id, answer).await;
        }
    }

    async fn on_result(&mut self, result: Box<RawValue>) -> Flow {
        let in_task = matches!(
            self.call.plan,
            Plan::Auto {
                input: InputWhen::InTask,
                ..
            } | Plan::Always { .. }
        );
        let before = matches!(
            self.call.plan,
            Plan::Always {
                input: InputWhen::BeforeTask
            }
        );
        let asks = matches!(
            result::result_type(&result),
            Ok(result::ResultType::InputRequired)
        );
        if self.kept.is_none() && asks && in_task && !before {
            // The question belongs in a task: it is announced together with what is asked.
            return self.on_asks_first(result).await;
        }
        if self.kept.is_none() {
            let answer = self.fit(result).map_or_else(
                || Answer::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown)),
                Answer::Result,
            );
            self.answer(answer).await;
            return Flow::Done;
        }
        let invalid = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
        self.on_end(outcome::of_result(result), Answer::Failed(invalid))
            .await
    }

    /// A plain result as the client's era wants it.
    fn fit(&self, result: Box<RawValue>) -> Option<Box<RawValue>> {
        match self.call.era {
            Era::Modern => Some(result),
            Era::Legacy => {
                let known = self.runner.upstream.last_discovered();
                let info = known.as_ref().and_then(|d| d.server_info.as_deref());
                result::from_legacy(&self.call.outgoing.method, result, info).ok()
            }
        }
    }

    async fn on_asks_first(&mut self, result: Box<RawValue>) -> Flow {
        let Ok(asked) = input::requests_of(&result) else {
            self.answer(Answer::Failed(Failure::new(
                Reason::UpstreamInvalid,
                SideEffect::Unknown,
            )))
            .await;
            return Flow::Done;
        };
        let dispatch = asked.requests.is_empty();
        let event = OwnerEvent::RoundAsked {
            requests: asked.requests,
            request_state: asked.request_state,
        };
        if self.keep(vec![event], true).await.is_err() {
            // The client can answer the question itself: nothing is in flight.
            self.answer(Answer::Result(result)).await;
            return Flow::Done;
        }
        self.announce().await;
        if dispatch {
            self.next_leg()
        } else {
            self.wait_for_settlement().await
        }
    }

    /// The call has come to its end at the server.
    async fn on_end(&mut self, meaning: Meaning, answer: Answer) -> Flow {
        let Some(kept) = &self.kept else {
            self.answer(answer).await;
            return Flow::Done;
        };
        self.exchange = None;
        match meaning {
            Meaning::Completed(result) => {
                let bytes_max = self.call.rule.result_bytes_max;
                let end = if result.get().len() as u64 > bytes_max {
                    let failure = Failure::new(Reason::UpstreamTooLarge, SideEffect::Unknown);
                    Err(failure.to_error().to_raw())
                } else {
                    Ok(result)
                };
                self.runner.finish(&kept.loaded, end).await;
            }
            Meaning::Failed(error) => self.runner.finish(&kept.loaded, Err(error)).await,
            Meaning::Asks(asked) => return self.on_round(asked).await,
        }
        self.wait_for_settlement().await
    }

    /// A modern server ended the leg with questions.
    async fn on_round(&mut self, asked: input::Requests) -> Flow {
        let event = OwnerEvent::RoundAsked {
            requests: asked.requests,
            request_state: asked.request_state,
        };
        match self.apply(event).await {
            Ok(Some(Effect::Dispatch)) => self.next_leg(),
            Ok(_) => self.wait_for_settlement().await,
            Err(why) => {
                debug!(error = ?why, "a round of questions was not kept");
                self.give_up(Reason::UpstreamInvalid).await
            }
        }
    }

    fn next_leg(&mut self) -> Flow {
        if let Some(kept) = &self.kept {
            self.call.outgoing.retry = Some(leg::retry(&kept.loaded.task));
            self.open();
        }
        Flow::Continue
    }

    /// Nothing more to carry, but a client that never heard of the task must not leave it behind.
    async fn wait_for_settlement(&mut self) -> Flow {
        if let Some(seat) = self.seat.take()
            && !seat.settled().await
        {
            self.commit_cancel().await;
        }
        Flow::Done
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

    /// Makes the record of this call, with what has happened to it already.
    async fn keep(&mut self, events: Vec<OwnerEvent>, announced: bool) -> Result<(), StoreError> {
        let runner = Arc::clone(&self.runner);
        let mut task = self.new_task(announced);
        for event in events {
            let decided = step(&task, Event::Owner(task.fence, event), task.created_ms);
            task = decided.map_or(task, |Step { task, .. }| task);
        }
        // Only a modern server asks for the request again, with the answers in it.
        let request = match self.call.era {
            Era::Modern => Some(leg::store(&self.call.outgoing)?),
            Era::Legacy => None,
        };
        let id = task.id;
        // Watched before it exists: no change is missed.
        let watch = runner.watches.watch(vec![id]);
        let loaded = match runner.ledger.create(task, request).await {
            Ok(loaded) => loaded,
            Err(why) => {
                runner.doubt(id);
                return Err(why);
            }
        };
        let _ = self.carried.set(id);
        self.window = None;
        self.deadline = Instant::now() + Duration::from_millis(self.call.rule.max_duration_ms);
        self.kept = Some(Kept { loaded, watch });
        Ok(())
    }

    fn new_task(&self, announced: bool) -> Task {
        let (rule, now_ms) = (&self.call.rule, self.runner.ledger.now_ms());
        Task {
            id: TaskId::random(),
            caller: self.call.caller,
            method: (&*self.call.outgoing.method).into(),
            name: self
                .call
                .outgoing
                .name
                .as_deref()
                .unwrap_or_default()
                .into(),
            created_ms: now_ms,
            updated_ms: now_ms,
            deadline_ms: now_ms.saturating_add(rule.max_duration_ms),
            ttl_ms: rule.ttl_ms(),
            poll_interval_ms: rule.poll_interval_ms,
            input_timeout_ms: rule.input_timeout_ms,
            announced,
            digest: (!announced).then_some(self.call.digest),
            owner: Some(self.runner.incarnation.clone()),
            fence: Fence(1),
            leg: Leg::Sent(1),
            questions: Vec::new(),
            round: 0,
            request_state: None,
            status_message: None,
            progress: None,
            outcome: None,
            must_tell: false,
        }
    }

    /// Tells the client of what was kept: the task, or the question that parks the call.
    async fn announce(&mut self) {
        let Some(kept) = &self.kept else { return };
        let task = &kept.loaded.task;
        let json = if task.announced {
            view::create_result(task, self.runner.ledger.now_ms())
        } else {
            super::parked::input_required(task)
        };
        if let (Some(seat), Ok(result)) = (&self.seat, RawValue::from_string(json)) {
            seat.send(Reply::Answer(Answer::Result(result)), self.deadline)
                .await;
        }
    }

    async fn answer(&mut self, answer: Answer) {
        if let Some(seat) = self.seat.take() {
            seat.send(Reply::Answer(answer), self.deadline).await;
        }
    }

    /// The record changed, here or on another replica.
    async fn on_change(&mut self) -> Flow {
        let Some(kept) = &mut self.kept else {
            return Flow::Continue;
        };
        match self.runner.ledger.load(kept.loaded.task.id).await {
            Ok(Some(loaded)) => kept.loaded = loaded,
            Ok(None) => return self.lost().await,
            // Marked again when the store is back and something changes; the deadline stands.
            Err(_) => return Flow::Continue,
        }
        if kept.loaded.task.is_ended() {
            self.cancel_upstream().await;
            self.told().await;
            return Flow::Done;
        }
        self.deliver().await
    }

    /// Passes the client's answers on to the open call of a legacy server.
    async fn deliver(&mut self) -> Flow {
        if self.call.era == Era::Modern {
            return Flow::Continue;
        }
        let (Some(kept), Some(exchange)) = (&self.kept, &self.exchange) else {
            return Flow::Continue;
        };
        let control = Arc::clone(&exchange.control);
        let answers: Vec<_> = kept
            .loaded
            .task
            .undelivered()
            .map(|(q, answer)| (q.key.clone(), q.origin.clone(), Arc::from(answer.get())))
            .collect();
        for (key, origin, answer) in answers {
            if let Err(failure) = control
                .answer(&origin, upstream::Answer::Result(answer))
                .await
            {
                return self
                    .on_end(outcome::failed(failure), Answer::Failed(failure))
                    .await;
            }
            // A commit that fails is made up for by sending the same answer again: harmless.
            let _ = self.apply(OwnerEvent::Delivered { key }).await;
        }
        Flow::Continue
    }

    /// The client went away before it was told.
    async fn on_gone(&mut self) -> Flow {
        self.cancel_upstream().await;
        self.commit_cancel().await;
        self.told().await;
        Flow::Done
    }

    async fn commit_cancel(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        let event = Event::Cancel {
            reason: Some(Reason::CancelledByDisconnect),
        };
        match self.runner.ledger.apply(&kept.loaded, event).await {
            Ok((loaded, _)) => kept.loaded = loaded,
            Err(NotApplied::Rejected(_, stands)) => kept.loaded = *stands,
            // Found again through the owner's index.
            Err(NotApplied::Gone | NotApplied::Store(_)) => {}
        }
    }

    async fn told(&mut self) {
        if self
            .kept
            .as_ref()
            .is_some_and(|kept| kept.loaded.task.must_tell)
        {
            let _ = self.apply(OwnerEvent::Told).await;
        }
    }

    async fn cancel_upstream(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            exchange.control.cancel().await;
        }
    }

    async fn on_due(&mut self) -> Flow {
        let Some(kept) = &mut self.kept else {
            return self.give_up(Reason::Deadline).await;
        };
        match self.runner.ledger.apply(&kept.loaded, Event::Tick).await {
            Ok((loaded, _)) => {
                kept.loaded = loaded;
                self.cancel_upstream().await;
                self.told().await;
                Flow::Done
            }
            Err(NotApplied::Rejected(_, stands)) => {
                kept.loaded = *stands;
                self.on_change().await
            }
            // With the store away the sweeper ends the record when it is back.
            Err(NotApplied::Gone | NotApplied::Store(_)) => self.lost().await,
        }
    }

    /// Ends the call on raincheck's own account.
    async fn give_up(&mut self, reason: Reason) -> Flow {
        let opened = self.exchange.is_some();
        self.cancel_upstream().await;
        match &self.kept {
            Some(kept) => {
                let failure = kept.loaded.task.failure(reason);
                self.runner
                    .finish(&kept.loaded, Err(failure.to_error().to_raw()))
                    .await;
            }
            None if opened => {
                self.answer(Answer::Failed(Failure::new(reason, SideEffect::Unknown)))
                    .await;
            }
            None => self.answer(Answer::Failed(not_sent(reason))).await,
        }
        Flow::Done
    }

    /// The store no longer has the record: nobody can ever ask for the result.
    async fn lost(&mut self) -> Flow {
        warn!("the record of a running call is gone; the call is cancelled");
        self.cancel_upstream().await;
        Flow::Done
    }

    async fn commit_progress(&mut self) -> Flow {
        let Some((message, progress)) = self.progress.newest.take() else {
            return Flow::Continue;
        };
        self.progress.committed = Some(Instant::now());
        let Some(kept) = &mut self.kept else {
            return Flow::Continue;
        };
        let event = OwnerEvent::Progressed { message, progress };
        let event = Event::Owner(kept.loaded.task.fence, event);
        // Progress may be lost: newer progress follows.
        match self.runner.ledger.try_apply(&kept.loaded, event).await {
            Ok(Tried::Done(loaded, _) | Tried::Conflict(loaded)) => kept.loaded = *loaded,
            Err(_) => {}
        }
        Flow::Continue
    }

    async fn apply(&mut self, event: OwnerEvent) -> Result<Option<Effect>, NotApplied> {
        let Some(kept) = &mut self.kept else {
            return Err(NotApplied::Gone);
        };
        let event = Event::Owner(kept.loaded.task.fence, event);
        let (loaded, effect) = self.runner.ledger.apply(&kept.loaded, event).await?;
        kept.loaded = loaded;
        Ok(effect)
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

/// What a poller may see of a progress notification.
fn read_progress(params: &RawValue) -> Option<(Option<Box<str>>, Option<Progress>)> {
    let object = Object::parse(params.get()).ok()?;
    let number = |key| {
        object
            .get(key)
            .and_then(|raw| raw.get().parse::<f64>().ok())
    };
    let progress = Progress {
        progress: number("progress")?,
        total: number("total"),
    };
    let message = object.get_str("message").map_or_else(
        || match progress.total {
            Some(total) => format!("{} of {total}", progress.progress).into(),
            None => format!("progress {}", progress.progress).into(),
        },
        |text| Box::from(&*text),
    );
    Some((Some(message), Some(progress)))
}
