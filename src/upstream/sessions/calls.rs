//! The calls on one session, and the server's messages to them outside of their own streams. A message that names a
//! call goes to that call; a question that names none goes to the only call that may ask.

use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::lock::Mutex;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::upstream::inflight::Inflight;
use crate::upstream::message::log_at;
use crate::upstream::port::{Event, Question, UpstreamRequest};
use crate::upstream::reader_queue::{Full, ReaderQueue, SHARED_PATIENCE};
use crate::upstream::request_id::RequestId;

/// Events that wait for a call. One task reads the stream for all calls, and waits only a moment for one of them.
const EVENTS_MAX: usize = 16;

/// The calls that run on one session. One at a time, unless the session is shared.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SessionCalls(Mutex<Inflight<RequestId, JoinedCall>>);

#[derive(Debug)]
struct JoinedCall {
    wants_progress: bool,
    log_level: Option<Arc<str>>,
    events: ReaderQueue<Event>,
}

/// A channel for the events of one call.
pub(in crate::upstream) fn events() -> (mpsc::Sender<Event>, mpsc::Receiver<Event>) {
    mpsc::channel(EVENTS_MAX)
}

/// A call that is joined to its session. After the guard is dropped, the call receives nothing more, but it may go on
/// and ask.
#[derive(Debug)]
pub(in crate::upstream) struct CallGuard {
    calls: Arc<SessionCalls>,
    id: RequestId,
    is_answered: bool,
}

impl CallGuard {
    /// The call has its answer, so it cannot ask any more.
    pub(in crate::upstream) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut calls = self.calls.lock();
        calls.remove(&self.id);
        // A call without an answer may still run at the server and ask, although its client is gone.
        if !self.is_answered {
            calls.abandon(self.id.clone(), Instant::now());
        }
    }
}

impl SessionCalls {
    pub(in crate::upstream) fn join(
        self: &Arc<Self>,
        id: RequestId,
        request: &UpstreamRequest,
        events: mpsc::Sender<Event>,
    ) -> CallGuard {
        let call = JoinedCall {
            wants_progress: request.wants_progress,
            log_level: request.log_level.clone(),
            events: ReaderQueue::new(events, SHARED_PATIENCE),
        };
        // Only requests during which the server may ask are joined.
        self.lock().insert(id.clone(), true, call);
        CallGuard {
            calls: Arc::clone(self),
            id,
            is_answered: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inflight<RequestId, JoinedCall>> {
        self.0.lock()
    }

    /// Returns `true` if no call runs.
    pub(in crate::upstream) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the wait for a call that has as many events waiting as may.
    pub(in crate::upstream) fn full(&self) -> Option<Full> {
        self.lock().requests().find_map(|call| call.events.full())
    }

    /// Puts a question to the only call that may ask. False if there is no such call, or if it is slow to read.
    pub(in crate::upstream) fn ask(&self, question: Question) -> bool {
        let calls = self.lock();
        let asked = calls.only(Instant::now());
        let is_put = asked.is_some_and(|only| only.say(Event::Question(question)));
        if !is_put {
            let running = calls.len();
            warn!(running, "a question that names no call was refused");
        }
        is_put
    }

    pub(in crate::upstream) fn progress(&self, params: Box<RawValue>) {
        let token = Object::parse(params.get())
            .ok()
            .and_then(|params| params.get(PROGRESS_TOKEN));
        let Some(token) = token else { return };
        if let Some(named) = self.lock().get(&RequestId::read(token.get()))
            && named.wants_progress
        {
            named.say(Event::Progress(params));
        }
    }

    pub(in crate::upstream) fn log(&self, params: Box<RawValue>) {
        if let Some(only) = self.lock().only(Instant::now())
            && let Some(event) = log_at(only.log_level.as_deref(), params)
        {
            only.say(event);
        }
    }

    /// Ends a call whose answer came here and not on the call's own stream.
    pub(in crate::upstream) fn end(&self, id: &str, end: Event) {
        if let Some(named) = self.lock().get(&RequestId::read(id)) {
            named.say(end);
        } else {
            debug!("an answer to no request of ours was ignored");
        }
    }
}

impl JoinedCall {
    /// Gives an event to the call. False if too many wait already.
    fn say(&self, event: Event) -> bool {
        let is_put = self.events.put(event);
        if !is_put {
            debug!("an event for a slow reader was dropped");
        }
        is_put
    }
}
