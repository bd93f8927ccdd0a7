//! Who hears what a server says on a session outside of a call's own stream: what names a call goes
//! to that call, a question that names none goes to the only one that may be meant.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::message::log_at;
use super::port::{Event, Outgoing, Question, UpstreamError};
use super::request_id::RequestId;
use crate::lock::Mutex;
use crate::mcp::error::Failure;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;

/// Events that wait for a call; more are dropped, and more questions refused. The reader serves all
/// calls of a session and must not wait for one of them.
const EVENTS_MAX: usize = 16;

/// A call that was given up may go on and ask. After so long it is taken to have ended: many servers
/// never answer what was cancelled.
const ABANDONED: Duration = Duration::from_secs(30);

/// The calls that run on one session. One at a time, unless the session is shared.
#[derive(Debug, Default)]
pub(super) struct Hearers(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    running: Vec<Running>,
    /// Until then a question may come from a call that nobody waits for.
    doubtful: Option<Instant>,
}

#[derive(Debug)]
struct Running {
    id: RequestId,
    wants_progress: bool,
    log_level: Option<Arc<str>>,
    events: mpsc::Sender<Event>,
}

/// What is said to one call.
pub(super) fn events() -> (mpsc::Sender<Event>, mpsc::Receiver<Event>) {
    mpsc::channel(EVENTS_MAX)
}

/// A call's place. Dropped, nothing more is said to it.
#[derive(Debug)]
pub(super) struct Hearing {
    hearers: Arc<Hearers>,
    id: RequestId,
    is_answered: bool,
}

impl Hearing {
    /// The call has its answer: it cannot ask any more.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let mut table = self.hearers.table();
        table.running.retain(|running| running.id != self.id);
        if !self.is_answered {
            table.doubtful = Some(Instant::now() + ABANDONED);
        }
    }
}

impl Hearers {
    pub(super) fn join(
        self: &Arc<Self>,
        id: RequestId,
        outgoing: &Outgoing,
        events: mpsc::Sender<Event>,
    ) -> Hearing {
        self.table().running.push(Running {
            id: id.clone(),
            wants_progress: outgoing.wants_progress,
            log_level: outgoing.log_level.clone(),
            events,
        });
        Hearing {
            hearers: Arc::clone(self),
            id,
            is_answered: false,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// No call runs.
    pub(super) fn is_empty(&self) -> bool {
        self.table().running.is_empty()
    }

    /// False where it cannot be told who is asked, or that call is slow to hear.
    pub(super) fn ask(&self, question: Question) -> bool {
        let table = self.table();
        let asked = table.only_one();
        let is_put = asked.is_some_and(|only| only.say(Event::Question(question)));
        if !is_put {
            let running = table.running.len();
            warn!(running, "a question that names no call was refused");
        }
        is_put
    }

    pub(super) fn progress(&self, params: Box<RawValue>) {
        let token = Object::parse(params.get())
            .ok()
            .and_then(|params| params.get(PROGRESS_TOKEN));
        let Some(token) = token else { return };
        let table = self.table();
        let mut running = table.running.iter();
        if let Some(named) = running.find(|running| running.id.is(token.get()))
            && named.wants_progress
        {
            named.say(Event::Progress(params));
        }
    }

    pub(super) fn log(&self, params: Box<RawValue>) {
        let table = self.table();
        if let Some(only) = table.only_one()
            && let Some(event) = log_at(only.log_level.as_deref(), params)
        {
            only.say(event);
        }
    }

    /// An answer that came here and not on the stream of its call.
    pub(super) fn answer(&self, id: &str, answer: Result<Box<RawValue>, Box<RawValue>>) {
        let answer = match answer {
            Ok(result) => Event::Result(result),
            Err(error) => Event::Error(UpstreamError::in_message(error)),
        };
        self.end(id, answer);
    }

    /// One that came here, and cannot be read.
    pub(super) fn fail(&self, id: &str, failure: Failure) {
        self.end(id, Event::Failed(failure));
    }

    fn end(&self, id: &str, end: Event) {
        let table = self.table();
        let mut running = table.running.iter();
        let Some(named) = running.find(|running| running.id.is(id)) else {
            debug!("an answer to no request of ours was ignored");
            return;
        };
        named.say(end);
    }
}

impl Table {
    /// The only call that can be meant by what names none.
    fn only_one(&self) -> Option<&Running> {
        let now = Instant::now();
        match self.running.as_slice() {
            [only] if self.doubtful.is_none_or(|until| until <= now) => Some(only),
            _ => None,
        }
    }
}

impl Running {
    /// False where too much waits for it already.
    fn say(&self, event: Event) -> bool {
        let is_put = self.events.try_send(event).is_ok();
        if !is_put {
            debug!(
                id = self.id.as_json(),
                "an event for a slow reader was dropped"
            );
        }
        is_put
    }
}
