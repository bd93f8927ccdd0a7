//! A task of a legacy server's own (2025-11-25, Tasks): created, followed and fetched.
//!
//! The result is asked for at once, because the server may answer late and asks its questions there;
//! beside that its state is polled, for its words and for servers that do not let anybody wait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::super::pin::Pin;
use super::super::port::{Answer, CANCEL_PATIENCE, Control, Event, Exchange, Outgoing};
use super::{Begin, FAILURES_MAX, INTERVAL, INTERVAL_MAX, LOST, Words, interval_of, is_unknown};
use crate::lock::Mutex;
use crate::mcp::error::Failure;
use crate::mcp::json::{Object, Writer};

/// How long a cancel waits for the task that the server may be making.
const CREATE_PATIENCE: Duration = Duration::from_secs(1);

/// How long a server may take to answer about its task.
const POLL_PATIENCE: Duration = Duration::from_secs(10);

/// The whole of a call. Nothing is sent before the events are polled.
pub(in crate::upstream) fn begin(begin: Begin, mut outgoing: Outgoing) -> Exchange {
    // On a client's own session, all of it is there.
    let pin = outgoing.pin.take().unwrap_or_default();
    outgoing.pin = Some(pin.clone());
    let requests = Requests {
        begin,
        call: outgoing.clone(),
        pin,
    };
    let creating = (requests.begin)(outgoing);
    let side = Arc::new(Side {
        requests: requests.clone(),
        at: Mutex::new(At {
            task: None,
            control: Some(Arc::clone(&creating.control)),
        }),
        turned: Notify::new(),
    });
    let driver = Driver {
        requests,
        side: Arc::clone(&side),
        phase: Phase::Creating(creating),
    };
    let events = stream::unfold(driver, |mut driver| async {
        let event = driver.next().await?;
        Some((event, driver))
    });
    Exchange {
        events: events.boxed(),
        control: side,
    }
}

/// Requests of one call, all on one session.
#[derive(Clone)]
struct Requests {
    begin: Begin,
    call: Outgoing,
    pin: Pin,
}

impl Requests {
    fn about(&self, method: &str, task: &str) -> Exchange {
        let mut params = Writer::object();
        params.str("taskId", task);
        (self.begin)(Outgoing {
            method: method.into(),
            params: params.end().into(),
            name: None,
            wants_progress: false,
            native_task: false,
            pin: Some(self.pin.clone()),
            ..self.call.clone()
        })
    }
}

/// The way back to the server.
struct Side {
    requests: Requests,
    at: Mutex<At>,
    /// The creation came to something.
    turned: Notify,
}

#[derive(Default)]
struct At {
    task: Option<Arc<str>>,
    /// Of the request on which the server may ask.
    control: Option<Arc<dyn Control>>,
}

impl Side {
    fn set(&self, change: impl FnOnce(&mut At)) {
        change(&mut self.at.lock());
    }

    fn get(&self) -> (Option<Arc<str>>, Option<Arc<dyn Control>>) {
        let at = self.at.lock();
        (at.task.clone(), at.control.clone())
    }
}

#[async_trait]
impl Control for Side {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        match self.get().1 {
            Some(control) => control.answer(id, answer).await,
            None => Ok(()),
        }
    }

    async fn cancel(&self) {
        let (task, control) = match self.get() {
            // The server may be about to make the task: by its name alone it can be cancelled.
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

struct Driver {
    requests: Requests,
    side: Arc<Side>,
    phase: Phase,
}

enum Phase {
    Creating(Exchange),
    Driving(Box<Task>),
    Over,
}

/// A task of the server's under way.
struct Task {
    id: Arc<str>,
    /// The request for its result; `None` until the next poll says whether to ask again.
    result: Option<Exchange>,
    /// A poll said so: from here on an error answer to it is the task's own, and not a refusal to let
    /// anybody wait.
    has_ended: bool,
    polls: BoxStream<'static, Polled>,
    words: Words,
    failures: u32,
}

/// What a poll said.
enum Polled {
    State(Box<RawValue>),
    /// The server does not know the task, or does not let it be asked about.
    Refused,
    Failed,
}

impl Driver {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match &mut self.phase {
                Phase::Over => return None,
                Phase::Creating(creating) => match creating.events.next().await {
                    Some(Event::Result(result)) => match created(&result) {
                        Some((id, interval)) => {
                            self.drive(id, interval);
                            continue;
                        }
                        // It ran at once.
                        None => self.end(Event::Result(result)),
                    },
                    // Nothing has to be fetched of a request that is as good as answered.
                    Some(Event::Resumable) => continue,
                    Some(end @ (Event::Error(_) | Event::Failed(_))) => self.end(end),
                    Some(event) => event,
                    None => self.end(Event::Failed(LOST)),
                },
                Phase::Driving(task) => {
                    let turned = task.turn(&self.requests, &self.side).await;
                    match turned {
                        Turned::Nothing => continue,
                        Turned::Said(event) => event,
                        Turned::Ended(event) => self.end(event),
                    }
                }
            };
            return Some(event);
        }
    }

    fn drive(&mut self, id: Arc<str>, interval: Duration) {
        let mut task = Task {
            polls: polls(self.requests.clone(), Arc::clone(&id), interval),
            id,
            result: None,
            has_ended: false,
            words: Words::default(),
            failures: 0,
        };
        task.ask_for_result(&self.requests, &self.side);
        self.side.set(|at| at.task = Some(Arc::clone(&task.id)));
        self.side.turned.notify_one();
        self.phase = Phase::Driving(Box::new(task));
    }

    fn end(&mut self, event: Event) -> Event {
        self.phase = Phase::Over;
        self.side.set(|at| *at = At::default());
        self.side.turned.notify_one();
        if matches!(event, Event::Result(_) | Event::Error(_)) {
            self.requests.pin.give_back();
        }
        event
    }
}

enum Turned {
    Nothing,
    Said(Event),
    Ended(Event),
}

impl Task {
    /// What comes next: a word on the result's stream, or a poll's. Neither loses anything when the
    /// other wins.
    async fn turn(&mut self, requests: &Requests, side: &Side) -> Turned {
        let result = self.result.as_mut();
        tokio::select! {
            biased;
            event = next_of(result) => self.on_result(event),
            Some(polled) = self.polls.next() => self.on_poll(polled, requests, side),
        }
    }

    fn ask_for_result(&mut self, requests: &Requests, side: &Side) {
        let asking = requests.about("tasks/result", &self.id);
        side.set(|at| at.control = Some(Arc::clone(&asking.control)));
        self.result = Some(asking);
    }

    fn on_result(&mut self, event: Option<Event>) -> Turned {
        match event {
            Some(end @ Event::Result(_)) => return Turned::Ended(end),
            Some(Event::Resumable | Event::Sent) => return Turned::Nothing,
            Some(end @ Event::Error(_)) if self.has_ended => return Turned::Ended(end),
            Some(Event::Error(_) | Event::Failed(_)) | None => {}
            Some(event) => return Turned::Said(event),
        }
        // The task's own error, or a server that lets nobody wait, or a stream that was cut: it is
        // asked for again when a poll has told.
        self.result = None;
        Turned::Nothing
    }

    fn on_poll(&mut self, polled: Polled, requests: &Requests, side: &Side) -> Turned {
        let is_asked = self.result.is_some();
        match polled {
            Polled::State(state) => {
                self.failures = 0;
                let state = Object::parse(state.get()).unwrap_or_default();
                let status = state.get_str("status").unwrap_or_default();
                let had_ended = self.has_ended;
                self.has_ended = matches!(&*status, "completed" | "failed" | "cancelled");
                // A result that did not come in a whole interval after the end was lost.
                if !is_asked || (had_ended && self.has_ended) {
                    self.ask_for_result(requests, side);
                }
                let words = self.words.heard(&state);
                words.map_or(Turned::Nothing, |words| {
                    Turned::Said(Event::Progress(words))
                })
            }
            // As long as its result is waited for it is nobody's business.
            Polled::Refused | Polled::Failed if is_asked => Turned::Nothing,
            Polled::Refused => Turned::Ended(Event::Failed(LOST)),
            Polled::Failed => {
                self.failures += 1;
                if self.failures < FAILURES_MAX {
                    return Turned::Nothing;
                }
                Turned::Ended(Event::Failed(LOST))
            }
        }
    }
}

async fn next_of(exchange: Option<&mut Exchange>) -> Option<Event> {
    match exchange {
        Some(exchange) => exchange.events.next().await,
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

/// Asks for the state again and again, for as long as anybody listens.
fn polls(requests: Requests, id: Arc<str>, interval: Duration) -> BoxStream<'static, Polled> {
    stream::unfold(interval, move |interval| {
        let (requests, id) = (requests.clone(), Arc::clone(&id));
        async move {
            tokio::time::sleep(interval).await;
            let mut asking = requests.about("tasks/get", &id);
            let given_up = Instant::now() + POLL_PATIENCE;
            while let Ok(Some(event)) = timeout_at(given_up, asking.events.next()).await {
                match event {
                    Event::Result(result) => {
                        let said = Object::parse(result.get()).ok();
                        let said = said.and_then(|task| interval_of(&task, "pollInterval"));
                        return Some((Polled::State(result), said.unwrap_or(interval)));
                    }
                    Event::Error(error) if is_unknown(&error) => {
                        return Some((Polled::Refused, interval));
                    }
                    Event::Error(_) | Event::Failed(_) => break,
                    Event::Progress(_)
                    | Event::Log(_)
                    | Event::Question(_)
                    | Event::Resumable
                    | Event::Later(_)
                    | Event::Sent => {}
                }
            }
            Some((Polled::Failed, (interval * 2).min(INTERVAL_MAX)))
        }
    })
    .boxed()
}
