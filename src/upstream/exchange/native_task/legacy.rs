//! A legacy server's own task (2025-11-25, Tasks): created, followed and fetched over one session. The result
//! is requested at once, because a server may answer late and asks its questions on that stream. The task's
//! state is polled as well: for status messages, and for servers that refuse to let a client wait for the
//! result.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::lock::Mutex;
use crate::mcp::error::Failure;
use crate::mcp::json::{Object, Writer};
use crate::upstream::exchange::native_task::{
    BeginRequest, FAILURES_MAX, INTERVAL, INTERVAL_MAX, LOST, NativeAnswer, StatusMessage,
    interval_of,
};
use crate::upstream::exchange::{RequestTransport, Unsent, Untaken};
use crate::upstream::pin::Pin;
use crate::upstream::port::{Answer, CANCEL_PATIENCE, Control, Event, Exchange, UpstreamRequest};
use crate::upstream::unfold::Unfold;

/// How long a cancel waits for the task that the server may be making.
const CREATE_PATIENCE: Duration = Duration::from_secs(1);

/// A call from its creation to its result. Nothing is sent before the events are polled.
pub(in crate::upstream) fn begin(begin: BeginRequest, mut call: UpstreamRequest) -> Exchange {
    // On a client's own session, all of it is there.
    let pin = call.pin.get_or_insert_default().clone();
    let requests = LegacyTaskRequests { begin, call, pin };
    let control = Arc::new(LegacyTaskControl {
        requests: requests.clone(),
        at: Mutex::default(),
        turned: Notify::new(),
    });
    let call = LegacyTaskCall {
        requests,
        control: Arc::clone(&control),
    };
    super::super::begin(call, control)
}

/// Requests of one call, all on one session.
#[derive(Clone)]
struct LegacyTaskRequests {
    begin: BeginRequest,
    call: UpstreamRequest,
    pin: Pin,
}

impl LegacyTaskRequests {
    fn about(&self, method: &str, task: &str) -> Exchange {
        let mut params = Writer::object();
        params.str("taskId", task);
        let request = self.call.about_task(method, params.end());
        (self.begin)(UpstreamRequest {
            native_task: false,
            pin: Some(self.pin.clone()),
            ..request
        })
    }
}

/// The way back to the server.
struct LegacyTaskControl {
    requests: LegacyTaskRequests,
    at: Mutex<At>,
    /// Notified when the server has answered the request that creates the task.
    turned: Notify,
}

#[derive(Default)]
struct At {
    task: Option<Arc<str>>,
    /// The control of the request on which the server may ask.
    control: Option<Arc<dyn Control>>,
}

impl LegacyTaskControl {
    fn set(&self, change: impl FnOnce(&mut At)) {
        change(&mut self.at.lock());
    }

    fn get(&self) -> (Option<Arc<str>>, Option<Arc<dyn Control>>) {
        let at = self.at.lock();
        (at.task.clone(), at.control.clone())
    }
}

#[async_trait]
impl Control for LegacyTaskControl {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        match self.get().1 {
            Some(control) => control.answer(id, answer).await,
            None => Ok(()),
        }
    }

    async fn cancel(&self) {
        let (task, control) = match self.get() {
            // The server may be creating the task, and only the task's id can be cancelled: wait for it.
            (None, Some(control)) => {
                let _ = tokio::time::timeout(CREATE_PATIENCE, self.turned.notified()).await;
                (self.get().0, Some(control))
            }
            known => known,
        };
        match (task, control) {
            (Some(task), _) => {
                let mut cancelling = self.requests.about("tasks/cancel", &task);
                let told = async { while cancelling.events.next().await.is_some() {} };
                let _ = tokio::time::timeout(CANCEL_PATIENCE, told).await;
            }
            (None, Some(control)) => control.cancel().await,
            (None, None) => {}
        }
    }
}

struct LegacyTaskCall {
    requests: LegacyTaskRequests,
    control: Arc<LegacyTaskControl>,
}

enum TaskStage {
    Creating(Exchange),
    Following(Box<FollowedTask>),
}

/// A task of the server's under way.
struct FollowedTask {
    id: Arc<str>,
    /// The request for its result; `None` until the next poll says whether to ask again.
    result: Option<Exchange>,
    /// A poll said that the task has ended. From here on an error is the task's own, and no refusal to let a
    /// client wait.
    has_ended: bool,
    polls: BoxStream<'static, NativeAnswer>,
    message: StatusMessage,
    failures: u32,
}

impl RequestTransport for LegacyTaskCall {
    type Open = TaskStage;

    async fn send(&mut self) -> Result<TaskStage, Untaken> {
        let LegacyTaskRequests { begin, call, .. } = &self.requests;
        let creating = begin(call.clone());
        let control = Arc::clone(&creating.control);
        // Before anything is sent, so that a cancel reaches the request that creates the task.
        self.control.set(|at| at.control = Some(control));
        Ok(TaskStage::Creating(creating))
    }

    async fn next(&mut self, stage: &mut TaskStage) -> Result<Event, Unsent> {
        loop {
            let event = match stage {
                TaskStage::Creating(creating) => match creating.events.next().await {
                    Some(Event::Result(result)) => match created(&result) {
                        Some((id, interval)) => {
                            *stage = TaskStage::Following(Box::new(self.follow(id, interval)));
                            None
                        }
                        // The server ran the call at once, without a task.
                        None => Some(Event::Result(result)),
                    },
                    // The request is answered already, so nothing is to be fetched.
                    Some(Event::Resumable) => None,
                    Some(event) => Some(event),
                    None => Some(Event::Failed(LOST)),
                },
                TaskStage::Following(task) => task.turn(&self.requests, &self.control).await,
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
        if last.is_answer() {
            self.requests.pin.give_back();
        }
    }
}

impl LegacyTaskCall {
    fn follow(&self, id: Arc<str>, interval: Duration) -> FollowedTask {
        let polls = Polls {
            requests: self.requests.clone(),
            task: Arc::clone(&id),
            interval,
        };
        let mut task = FollowedTask {
            polls: polls.into_stream(),
            id,
            result: None,
            has_ended: false,
            message: StatusMessage::default(),
            failures: 0,
        };
        task.ask_for_result(&self.requests, &self.control);
        self.control.set(|at| at.task = Some(Arc::clone(&task.id)));
        self.control.turned.notify_one();
        task
    }
}

impl FollowedTask {
    /// The next event: of the result's stream, or of a poll. Neither loses anything when the other one wins.
    /// `None`: nothing that the client hears.
    async fn turn(
        &mut self,
        requests: &LegacyTaskRequests,
        control: &LegacyTaskControl,
    ) -> Option<Event> {
        let result = self.result.as_mut();
        tokio::select! {
            biased;
            event = next_of(result) => self.on_result(event),
            Some(polled) = self.polls.next() => self.on_poll(polled, requests, control),
        }
    }

    fn ask_for_result(&mut self, requests: &LegacyTaskRequests, control: &LegacyTaskControl) {
        let asking = requests.about("tasks/result", &self.id);
        control.set(|at| at.control = Some(Arc::clone(&asking.control)));
        self.result = Some(asking);
    }

    fn on_result(&mut self, event: Option<Event>) -> Option<Event> {
        match event {
            Some(Event::Resumable | Event::Sent) => None,
            Some(Event::Error(_)) if self.has_ended => event,
            // The task's own error, or a server that lets no client wait, or a stream that was cut: the
            // result is asked for again after the next poll.
            Some(Event::Error(_) | Event::Failed(_)) | None => {
                self.result = None;
                None
            }
            Some(event) => Some(event),
        }
    }

    fn on_poll(
        &mut self,
        polled: NativeAnswer,
        requests: &LegacyTaskRequests,
        control: &LegacyTaskControl,
    ) -> Option<Event> {
        let is_asked = self.result.is_some();
        match polled {
            NativeAnswer::Result(state) => {
                self.failures = 0;
                let state = Object::parse(state.get()).unwrap_or_default();
                let status = state.get_str("status").unwrap_or_default();
                let had_ended = self.has_ended;
                self.has_ended = matches!(&*status, "completed" | "failed" | "cancelled");
                // A result that did not come in a whole interval after the end was lost.
                if !is_asked || (had_ended && self.has_ended) {
                    self.ask_for_result(requests, control);
                }
                self.message.progress(&state).map(Event::Progress)
            }
            // A poll that fails does not matter while the result is awaited.
            NativeAnswer::Refused | NativeAnswer::None if is_asked => None,
            NativeAnswer::Refused => Some(Event::Failed(LOST)),
            NativeAnswer::None => {
                self.failures += 1;
                (self.failures >= FAILURES_MAX).then_some(Event::Failed(LOST))
            }
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

/// The task that a `CreateTaskResult` names, and how often to ask about it.
fn created(result: &RawValue) -> Option<(Arc<str>, Duration)> {
    let task = Object::parse(result.get()).ok()?.get_object("task")?;
    let id = task.get_str("taskId")?;
    let interval = interval_of(&task, "pollInterval").unwrap_or(INTERVAL);
    Some(((&*id).into(), interval))
}

/// Polls the state of the task for as long as the stream is read.
struct Polls {
    requests: LegacyTaskRequests,
    task: Arc<str>,
    interval: Duration,
}

impl Unfold for Polls {
    type Item = NativeAnswer;

    async fn next(&mut self) -> Option<NativeAnswer> {
        // The answer that creates the task has its state already, so the first poll comes after a pause, too.
        tokio::time::sleep(self.interval).await;
        let polled = NativeAnswer::to(self.requests.about("tasks/get", &self.task)).await;
        match &polled {
            NativeAnswer::Result(state) => {
                let state = Object::parse(state.get()).ok();
                let said = state.and_then(|state| interval_of(&state, "pollInterval"));
                self.interval = said.unwrap_or(self.interval);
            }
            NativeAnswer::Refused => {}
            NativeAnswer::None => self.interval = (self.interval * 2).min(INTERVAL_MAX),
        }
        Some(polled)
    }
}
