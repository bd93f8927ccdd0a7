//! The calls on one session, and the server's messages to them outside of their own streams. A message that names a
//! call goes to that call; a question that names none goes to the only call that may ask.

use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, warn};

use crate::base::lock::Mutex;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::upstream::inflight::Inflight;
use crate::upstream::message::{log_at, may_ask};
use crate::upstream::port::{Event, Question, UpstreamRequest};
use crate::upstream::reader_queue::{Full, ReaderQueue, SHARED_PATIENCE};
use crate::upstream::request_id::RequestId;

/// Events that wait for a call; its end has a place of its own. One task reads the stream for all calls, and waits only a
/// moment for one of them.
const EVENTS_MAX: usize = 16;

/// The calls that run on one session. One at a time, unless the session is shared.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SessionCalls {
    running: Mutex<Inflight<RequestId, JoinedCall>>,
    /// The streams on which the server may answer beside the calls' own. Each is cancelled when it ends.
    streams: Mutex<Vec<CancellationToken>>,
}

#[derive(Debug)]
struct JoinedCall {
    wants_progress: bool,
    log_level: Option<Arc<str>>,
    events: ReaderQueue<Event>,
    /// The place of its end. `None`: it has ended, or the place is that of an earlier session of the call.
    end: Option<mpsc::OwnedPermit<Event>>,
    has_answer: bool,
}

/// A channel for the events of one call.
pub(in crate::upstream) fn events() -> (mpsc::Sender<Event>, mpsc::Receiver<Event>) {
    mpsc::channel(EVENTS_MAX + 1)
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

    /// Returns `true` if the answer of the call came outside of the call's own stream.
    pub(in crate::upstream) fn has_answer(&self) -> bool {
        let calls = self.calls.lock();
        calls.get(&self.id).is_some_and(|call| call.has_answer)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut calls = self.calls.lock();
        // A call without an answer may still run at the server and ask, although its client is gone.
        if let Some((call, true)) = calls.remove(&self.id)
            && !self.is_answered
            && !call.has_answer
        {
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
        // The place is taken now, so that the end of a call never waits for its reader.
        let end = events.clone().try_reserve_owned().ok();
        let call = JoinedCall {
            end,
            has_answer: false,
            wants_progress: request.wants_progress,
            log_level: request.log_level.clone(),
            events: ReaderQueue::new(events, SHARED_PATIENCE),
        };
        let may_ask = may_ask(&request.method);
        self.lock().insert(id.clone(), may_ask, call);
        CallGuard {
            calls: Arc::clone(self),
            id,
            is_answered: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inflight<RequestId, JoinedCall>> {
        self.running.lock()
    }

    /// The session's own stream is open until the guard is dropped.
    pub(in crate::upstream) fn opened(&self) -> DropGuard {
        let stream = CancellationToken::new();
        let mut streams = self.streams.lock();
        streams.retain(|stream| !stream.is_cancelled());
        streams.push(stream.clone());
        drop(streams);
        stream.drop_guard()
    }

    /// Returns the session's own stream, if it is open. Cancelled when it ends.
    pub(in crate::upstream) fn stream(&self) -> Option<CancellationToken> {
        let streams = self.streams.lock();
        let open = streams.iter().find(|stream| !stream.is_cancelled());
        open.cloned()
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
        let mut calls = self.lock();
        let Some(named) = calls.get_mut(&RequestId::read(id)) else {
            debug!("an answer to no request of ours was ignored");
            return;
        };
        named.has_answer = !matches!(end, Event::Failed(_));
        match named.end.take() {
            Some(place) => {
                place.send(end);
            }
            None => {
                named.say(end);
            }
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

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn a_call_that_is_slow_to_read_gets_its_end() {
        let calls = Arc::new(SessionCalls::default());
        let (said, mut events) = events();
        let request = UpstreamRequest::new([1; 16], "tools/call", "{}").with_progress(true);
        let _joined = calls.join(RequestId::number(1), &request, said);
        let progress = serde_json::json!({"progressToken": 1, "progress": 1});
        for _ in 0..2 * EVENTS_MAX {
            calls.progress(to_raw_value(&progress).unwrap());
        }
        calls.end("1", Event::Result(to_raw_value("done").unwrap()));
        let mut last = None;
        while let Ok(event) = events.try_recv() {
            last = Some(event);
        }
        assert!(matches!(last, Some(Event::Result(_))), "{last:?}");
    }
}
