//! Carries one call that is a task at the server: creates the task, polls it, puts its questions, and fetches its result.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::base::backoff::Backoff;
use crate::base::lock::Mutex;
use crate::base::unfold::Unfold;
use crate::mcp::error::Failure;
use crate::telemetry::metrics::METRICS;
use crate::upstream::exchange::remote_task::followed::FollowedTask;
use crate::upstream::exchange::remote_task::status_message::StatusMessage;
use crate::upstream::exchange::remote_task::{
    ASK_PATIENCE, BeginRequest, CreatedTask, LOST, RemoteAnswer, RemoteEnd, TaskCheck, TaskCodec,
    TaskRequest, TaskState, is_unknown,
};
use crate::upstream::exchange::{Driver, Phase, RequestTransport, Unsent, Untaken};
use crate::upstream::pin::Pin;
use crate::upstream::port::{Answer, Control, Event, Exchange, UpstreamRequest};

/// The time between polls if the server asks for none.
const INTERVAL: Duration = Duration::from_secs(2);

/// The most requests with one answer of a client.
const UPDATES_MAX: usize = 2;

/// The pauses between attempts to cancel a task.
const CANCEL_PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));

/// The most words for the state of a task that are warned of.
const UNKNOWN_MAX: usize = 8;

/// The requests of one call.
pub(super) struct TaskRequests<C> {
    codec: C,
    begin: BeginRequest,
    /// The request that begins the task, whose caller, credentials and headers the others have, too.
    call: Arc<UpstreamRequest>,
}

impl<C: TaskCodec> TaskRequests<C> {
    pub(super) fn new(
        codec: C,
        begin: BeginRequest,
        call: impl Into<Arc<UpstreamRequest>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            codec,
            begin,
            call: call.into(),
        })
    }

    fn about(&self, id: &str, ask: TaskRequest<'_>) -> Option<Exchange> {
        let request = self.codec.about(&self.call, id, ask)?;
        Some((self.begin)(Arc::new(request)))
    }

    /// Cancels the task. A server that does not answer is left alone after a while: the client does not wait for it.
    async fn cancel(&self, id: &str) {
        let mut pauses = CANCEL_PAUSES;
        let cancelling = async {
            while let Some(asking) = self.about(id, TaskRequest::Cancel) {
                let answer = RemoteAnswer::to(asking, ASK_PATIENCE).await;
                if matches!(answer, RemoteAnswer::Result(_)) {
                    break;
                }
                tokio::time::sleep(pauses.pause()).await;
            }
        };
        let _ = tokio::time::timeout(self.codec.cancel_patience(), cancelling).await;
    }
}

/// A call as a task of the server's.
pub(super) struct RemoteTask<C> {
    requests: Arc<TaskRequests<C>>,
    control: Arc<TaskControl<C>>,
    /// A task that is there already. Boxed, because a call keeps room for it until its end.
    created: Option<Box<CreatedTask>>,
    /// The session of the whole call, if the call has one to itself.
    pin: Option<Pin>,
}

/// A task at the server under way.
pub(super) enum TaskStage {
    Creating(Exchange),
    Following(Box<FollowedTask>),
}

impl<C: TaskCodec> RemoteTask<C> {
    /// The call creates the task, if the server makes one. `creating`: the exchange of the call.
    pub(super) fn to_be_created(requests: Arc<TaskRequests<C>>, creating: Exchange) -> Exchange {
        let pin = requests.call.pin.clone();
        Self::new(requests, None, pin).begin(Phase::Open(TaskStage::Creating(creating)))
    }

    /// The call was answered with this task.
    pub(super) fn created(requests: Arc<TaskRequests<C>>, created: CreatedTask) -> Exchange {
        // The exchange that the call was sent on gives back what it has.
        Self::new(requests, Some(created), None).begin(Phase::Unsent)
    }

    /// Another process created this task.
    pub(super) fn adopted(requests: Arc<TaskRequests<C>>, created: CreatedTask) -> Exchange {
        let pin = requests.call.pin.clone();
        Self::new(requests, Some(created), pin).begin(Phase::Unsent)
    }

    fn new(requests: Arc<TaskRequests<C>>, created: Option<CreatedTask>, pin: Option<Pin>) -> Self {
        let id = created.as_ref().map(|created| Arc::clone(&created.id));
        let control = Arc::new(TaskControl {
            requests: Arc::clone(&requests),
            at: Mutex::new(At { id, control: None }),
            turned: Notify::new(),
        });
        Self {
            requests,
            control,
            created: created.map(Box::new),
            pin,
        }
    }

    /// Nothing is sent before the events are polled.
    fn begin(self, phase: Phase<TaskStage>) -> Exchange {
        let control = Arc::clone(&self.control);
        Exchange {
            events: Driver::new(self, phase).into_stream(),
            control,
        }
    }

    fn follow(&self, created: CreatedTask) -> TaskStage {
        let polls = Polls {
            requests: Arc::clone(&self.requests),
            id: Arc::clone(&created.id),
            interval: created.interval.unwrap_or(INTERVAL),
        };
        self.control.set(|at| at.id = Some(Arc::clone(&created.id)));
        self.control.turned.notify_one();
        let job = self.requests.codec.job(&created.id);
        let mut ready: VecDeque<Event> = job.into_iter().map(Event::Job).collect();
        if self.control.resume_point().is_some() {
            ready.push_back(Event::Resumable(C::KEEP));
        }
        TaskStage::Following(Box::new(FollowedTask {
            fetching: self.fetch(&created.id, None),
            id: created.id,
            polls: polls.into_stream(),
            has_ended: false,
            ended: None,
            refusal: None,
            message: StatusMessage::default(),
            asked: BTreeSet::new(),
            ready,
            failures: 0,
            heard: Instant::now(),
            gone: None,
            unknown: BTreeSet::new(),
            is_refused: false,
        }))
    }

    /// Asks for the result. `None`: the state of an ended task has it, or the task has not ended.
    fn fetch(&self, id: &str, ended: Option<&RawValue>) -> Option<Exchange> {
        let fetching = self.requests.about(id, TaskRequest::Result(ended))?;
        let control = Arc::clone(&fetching.control);
        self.control.set(|at| at.control = Some(control));
        Some(fetching)
    }

    fn created_by(&self, answer: &RawValue) -> Option<CreatedTask> {
        self.requests.codec.created(&self.requests.call, answer)
    }

    /// The next event: of the result's stream, or of a poll. Neither loses anything when the other one wins.
    /// `None`: nothing that the client gets.
    async fn turn(&self, task: &mut FollowedTask) -> Option<Event> {
        if let Some(event) = task.ready.pop_front() {
            return Some(event);
        }
        // A task that runs for hours has few events, and thousands of tasks may run.
        task.ready = VecDeque::new();
        let polled = tokio::select! {
            biased;
            event = next_of(task.fetching.as_mut()) => {
                let codec = &self.requests.codec;
                let event = task.on_fetched(event, |answer| codec.is_final(answer))?;
                return Some(if let Event::Result(result) = event {
                    Event::Result(self.requests.codec.result(&task.id, result))
                } else {
                    event
                });
            }
            Some(polled) = task.polls.next() => polled,
        };
        if let Some(end) = self.unfetched(task) {
            return Some(end);
        }
        let is_refused = match self.on_check(task, polled) {
            Ok(event) => return event,
            Err(is_refused) => is_refused,
        };
        // Boxed, because the future of every task would keep room for it.
        let lost = Box::pin(self.on_failed(task)).await;
        lost.or_else(|| is_refused.then_some(Event::CredentialsRefused))
    }

    /// Reads a poll. `Err`: it failed, and with `true` it was refused for its credentials.
    fn on_check(&self, task: &mut FollowedTask, polled: TaskCheck) -> Result<Option<Event>, bool> {
        match polled {
            TaskCheck::State(state) => {
                (task.failures, task.heard, task.gone) = (0, Instant::now(), None);
                self.on_state(task, state);
                Ok(None)
            }
            // A poll that fails does not matter while the result is awaited.
            TaskCheck::Refused | TaskCheck::Gone | TaskCheck::Failed | TaskCheck::Unauthorized
                if task.fetching.is_some() =>
            {
                Ok(None)
            }
            TaskCheck::Refused => {
                let refused = self.requests.codec.refused(&task.id);
                Ok(Some(Event::Failed(refused)))
            }
            TaskCheck::Gone => {
                let first = *task.gone.get_or_insert_with(Instant::now);
                let lost = self.requests.codec.gone(&task.id, Instant::now() - first);
                Ok(lost.map(Event::Failed))
            }
            TaskCheck::Failed => Err(false),
            TaskCheck::Unauthorized => Err(true),
        }
    }

    /// A poll failed, and its answer is not awaited in another way. Returns the end of the call, if there were too many.
    async fn on_failed(&self, task: &mut FollowedTask) -> Option<Event> {
        task.failures += 1;
        let since = Instant::now() - task.heard;
        let lost = self.requests.codec.lost(&task.id, task.failures, since)?;
        if C::CANCELS_LOST {
            // Nothing fetches the result any more, so the server need not go on.
            self.requests.cancel(&task.id).await;
        }
        Some(Event::Failed(lost))
    }

    /// The end of a call whose task has ended, and whose result cannot be fetched.
    fn unfetched(&self, task: &mut FollowedTask) -> Option<Event> {
        let since = Instant::now() - task.ended?;
        let codec = &self.requests.codec;
        let lost = codec.unfetched(&task.id, since, task.refusal.is_some())?;
        Some(match task.refusal.take().map(|refusal| *refusal) {
            Some(Event::Result(result)) => Event::Result(codec.result(&task.id, result)),
            Some(refusal) => refusal,
            None => Event::Failed(lost),
        })
    }

    fn on_state(&self, task: &mut FollowedTask, state: TaskState) {
        if let Some(word) = state.unknown
            && task.unknown.len() < UNKNOWN_MAX
            && task.unknown.insert(word.clone())
        {
            let tool = self.requests.call.name.as_deref().unwrap_or_default();
            warn!(
                tool,
                word,
                "a job has a state that is not known: it counts as working; name it in [[jobs]]"
            );
        }
        task.ready
            .extend(task.message.progress(state.shown).map(Event::Progress));
        for question in state.questions {
            if task.asked.insert(Arc::clone(&question.id)) {
                task.ready.push_back(Event::Question(question));
            }
        }
        let had_ended = task.has_ended;
        task.has_ended = state.end.is_some();
        if !task.has_ended {
            task.ended = None;
        } else if task.ended.is_none() {
            task.ended = Some(Instant::now());
        }
        let ended = match state.end {
            Some(RemoteEnd::Answer(answer)) => return task.ready.push_back(answer),
            Some(RemoteEnd::ToFetch(ended)) => Some(ended),
            None => None,
        };
        let is_late = C::FETCHES_EARLY && had_ended && task.has_ended;
        if task.fetching.is_none() || is_late {
            // A result that was asked for early and did not come in a whole interval after the end was lost.
            task.fetching = self.fetch(&task.id, ended.as_deref());
        }
    }
}

async fn next_of(exchange: Option<&mut Exchange>) -> Option<Event> {
    match exchange {
        Some(exchange) => exchange.events.next().await,
        // Until the next poll asks for the result again, only the polls can end this turn.
        None => std::future::pending().await,
    }
}

impl<C: TaskCodec> RequestTransport for RemoteTask<C> {
    type Open = TaskStage;

    async fn send(&mut self) -> Result<TaskStage, Untaken> {
        let created = self.created.take();
        // A task that is to be created begins with the exchange of its call.
        let created = created.ok_or(Untaken::End(Event::Failed(LOST)))?;
        Ok(self.follow(*created))
    }

    async fn next(&mut self, stage: &mut TaskStage) -> Result<Event, Unsent> {
        loop {
            let event = match stage {
                TaskStage::Creating(creating) => {
                    let control = Arc::clone(&creating.control);
                    // Before anything is sent, so that a cancel reaches the request that creates the task.
                    self.control.set(|at| at.control = Some(control));
                    match creating.events.next().await {
                        Some(Event::Result(result)) => match self.created_by(&result) {
                            Some(created) => {
                                *stage = self.follow(created);
                                None
                            }
                            // The server ran the call at once, without a task.
                            None => Some(Event::Result(result)),
                        },
                        // The request is answered already, so nothing is to be fetched.
                        Some(Event::Resumable(_)) => None,
                        Some(event) => Some(event),
                        None => Some(Event::Failed(LOST)),
                    }
                }
                TaskStage::Following(task) => self.turn(task).await,
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    fn end(&mut self, stage: Option<TaskStage>, last: &Event) {
        drop(stage);
        self.control.set(|at| *at = At::default());
        self.control.turned.notify_one();
        // After any other end the task may still run, so a session that the call has to itself ends with the pin.
        if let Some(pin) = self.pin.take().filter(|_| last.is_answer()) {
            pin.give_back();
        }
    }
}

/// The way back to the server.
struct TaskControl<C> {
    requests: Arc<TaskRequests<C>>,
    at: Mutex<At>,
    /// Notified when the server has answered the request that creates the task.
    turned: Notify,
}

#[derive(Default)]
struct At {
    id: Option<Arc<str>>,
    /// The control of the request on which the server may ask.
    control: Option<Arc<dyn Control>>,
}

impl<C: TaskCodec> TaskControl<C> {
    fn set(&self, change: impl FnOnce(&mut At)) {
        change(&mut self.at.lock());
    }

    fn get(&self) -> (Option<Arc<str>>, Option<Arc<dyn Control>>) {
        let at = self.at.lock();
        (at.id.clone(), at.control.clone())
    }
}

#[async_trait]
impl<C: TaskCodec> Control for TaskControl<C> {
    async fn answer(&self, question: &str, answer: Answer) -> Result<(), Failure> {
        let TaskRequests { codec, begin, call } = &*self.requests;
        let (id, control) = self.get();
        let update = id.and_then(|id| codec.update(call, &id, question, &answer));
        let Some(update) = update.map(Arc::new) else {
            return match control {
                Some(control) => control.answer(question, answer).await,
                None => Ok(()),
            };
        };
        for _ in 0..UPDATES_MAX {
            match RemoteAnswer::to(begin(Arc::clone(&update)), codec.patience()).await {
                RemoteAnswer::Result(_) => return Ok(()),
                RemoteAnswer::Error(error) if is_unknown(&error) => break,
                // A server that has the answer already refuses it a second time.
                RemoteAnswer::Error(_) | RemoteAnswer::None => {}
            }
        }
        Err(LOST)
    }

    async fn cancel(&self) {
        let (id, control) = match self.get() {
            // The server may be creating the task, and only the task's id can be cancelled: wait for it.
            (None, Some(control)) => {
                let _ = tokio::time::timeout(C::CREATE_PATIENCE, self.turned.notified()).await;
                (self.get().0, Some(control))
            }
            known => known,
        };
        match (id, control) {
            (Some(id), _) => self.requests.cancel(&id).await,
            (None, Some(control)) => control.cancel().await,
            (None, None) => {}
        }
    }

    fn moves_at_once(&self) -> bool {
        self.requests.codec.moves_at_once()
    }

    fn hold(&self) {
        self.requests.codec.hold(&self.requests.call);
    }

    fn leave(&self) {
        self.requests.codec.leave(&self.requests.call);
    }

    fn resume_point(&self) -> Option<Box<str>> {
        let (id, _) = self.get();
        let TaskRequests { codec, call, .. } = &*self.requests;
        codec.resume_point(call, &id?)
    }
}

/// Polls the state of the task for as long as the stream is read.
struct Polls<C> {
    requests: Arc<TaskRequests<C>>,
    id: Arc<str>,
    interval: Duration,
}

impl<C: TaskCodec> Unfold for Polls<C> {
    type Item = TaskCheck;

    async fn next(&mut self) -> Option<TaskCheck> {
        // The answer that creates the task has its state already, so the first poll comes after a pause, too.
        tokio::time::sleep(self.interval).await;
        let codec = &self.requests.codec;
        let polled = match self.requests.about(&self.id, TaskRequest::State) {
            Some(asking) => {
                // Boxed, because a poll waits for its time far longer than for its answer.
                let answer = Box::pin(RemoteAnswer::to(asking, codec.patience())).await;
                codec.read(&self.id, answer)
            }
            None => TaskCheck::Refused,
        };
        let checks = &METRICS.calls.remote_checks;
        checks.with_label_values(&[polled.word()]).inc();
        self.interval = match &polled {
            TaskCheck::State(state) => state
                .interval
                .unwrap_or_else(|| codec.pause(self.interval, false)),
            TaskCheck::Refused => self.interval,
            TaskCheck::Gone | TaskCheck::Failed | TaskCheck::Unauthorized => {
                codec.pause(self.interval, true)
            }
        };
        Some(polled)
    }
}
