//! The calls of legacy sessions that run in this process, by session and JSON-RPC id: a cancel names the id of a
//! call, and an answer names the id of a question that a call asked.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::base::lock::Mutex;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::mcp::error::RpcError;
use crate::mcp::json::{quote, string};
use crate::runner::client_note::Leaving;
use crate::runner::responder::RelayedAnswer;
use crate::task::digest::Digest;
use crate::task::gave_up::CancelCause;

mod given_up;
mod same_call;

pub(in crate::downstream) use given_up::JoinableCall;
use given_up::{Collectable, GivenUpIds, GivingUp, JoinedCalls};

/// Calls of all sessions together, those among them that wait for their client. Resumable calls have a bound of
/// their own.
const CALLS_MAX: usize = 16 * 1024;

/// Calls of one session to a modern server.
const AT_MODERN_SERVER_MAX: usize = 256;

/// Requests of the client on our standard input; more wait in the pipe.
const PIPED_MAX: usize = 1024;

/// The kind of request that runs under the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum CallKind {
    /// raincheck carries the call on the client's own session, where the server knows it under another id.
    Carried,
    /// A carried call that several requests may join. A client that repeats its request to the letter uses the id
    /// again.
    Joined,
    /// The server has the call under the client's id, and raincheck logs its events.
    Resumable,
    /// raincheck carries the call from a session of its own to a modern server.
    AtModernServer,
    /// Any request of the client on our standard input.
    Piped,
}

impl CallKind {
    /// Calls of this kind that one session may have at once. `None`: only all sessions together are bounded.
    fn of_a_session_max(self) -> Option<usize> {
        match self {
            Self::AtModernServer => Some(AT_MODERN_SERVER_MAX),
            Self::Piped => Some(PIPED_MAX),
            Self::Carried | Self::Joined | Self::Resumable => None,
        }
    }
}

/// Where the client's answer to a question goes.
#[derive(Debug)]
pub(in crate::downstream) enum AnswerPath {
    /// To the carrier of the call, which gives the answer to the server.
    Carrier(mpsc::Sender<RelayedAnswer>),
    /// To the call on a hosted session: the whole message.
    Session(oneshot::Sender<Bytes>),
}

/// Why a call does not run here.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::downstream) enum EnterError {
    /// The session has a running call with that id, and both would be answered on one stream, or they are the same call.
    SameId,
    /// The session has too many calls, or all sessions together.
    Full,
}

impl EnterError {
    /// Returns the answer that the client receives under the id of its request.
    pub(in crate::downstream) fn answer(&self, id: &str) -> Rpc {
        match self {
            Self::SameId => {
                let error = RpcError::invalid_request("Invalid request: this id is in use");
                Rpc::error(id, &error)
            }
            Self::Full => Rpc::busy(id),
        }
    }
}

/// The call that a cancel found on this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::downstream) enum Cancelled {
    /// No call with that id.
    Nothing,
    /// A call that the server has under the same id: the server must receive the cancel, too.
    AtServer,
    /// A call that raincheck carries, and cancels at the server.
    Carried,
}

/// The calls of legacy sessions that run in this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallRegistry {
    calls: Arc<Mutex<Calls>>,
    calls_max: usize,
    giving_up: Arc<GivingUp>,
}

#[derive(Debug, Default)]
struct Calls {
    /// By session, and by number in order of time.
    of_sessions: HashMap<SessionKey, BTreeMap<u64, Call>>,
    joined: JoinedCalls,
    /// All calls but the resumable ones.
    count: usize,
    given_up: GivenUpIds,
    last: u64,
}

#[derive(Debug)]
struct Call {
    id: Box<str>,
    /// Since when the client waits, as far as is known.
    began: Instant,
    kind: CallKind,
    cancelled: CancellationToken,
    /// Set before `cancelled`: the client's clock ended.
    gave_up: Arc<AtomicBool>,
    /// A `tools/call` that the same call can collect.
    collectable: Option<Collectable>,
    /// raincheck carries a call that passed until the same call came.
    is_carried: bool,
    /// The questions that the client was asked, by their ids as JSON; bounded by the questions that one
    /// call may ask.
    questions: HashMap<Box<str>, AnswerPath>,
}

/// One call in the registry. Dropped, the call leaves it.
#[derive(Debug)]
pub(in crate::downstream) struct CallEntry {
    registry: CallRegistry,
    session: SessionKey,
    number: u64,
    cancelled: CancellationToken,
    gave_up: Arc<AtomicBool>,
}

impl Default for CallRegistry {
    fn default() -> Self {
        Self::new(CALLS_MAX)
    }
}

impl CallRegistry {
    fn new(calls_max: usize) -> Self {
        Self {
            calls: Arc::default(),
            calls_max,
            giving_up: Arc::default(),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock()
    }

    /// Enters a call with the id of its request, as JSON.
    pub(in crate::downstream) fn enter(
        &self,
        kind: CallKind,
        session: SessionKey,
        id: &str,
    ) -> Result<CallEntry, EnterError> {
        let mut calls = self.calls();
        // Over HTTP each answer has a stream of its own.
        let may_repeat = kind != CallKind::Piped;
        if !may_repeat && calls.of_session(session).any(|call| call.has(id)) {
            return Err(EnterError::SameId);
        }
        if kind != CallKind::Resumable {
            if calls.has_too_many(session, kind) || calls.count >= self.calls_max {
                return Err(EnterError::Full);
            }
            calls.count += 1;
        }
        calls.last += 1;
        let (number, cancelled) = (calls.last, CancellationToken::new());
        let gave_up = Arc::<AtomicBool>::default();
        calls.given_up.is_used_again(session, id);
        let call = Call {
            id: id.into(),
            began: Instant::now(),
            kind,
            cancelled: cancelled.clone(),
            gave_up: Arc::clone(&gave_up),
            collectable: None,
            is_carried: false,
            questions: HashMap::new(),
        };
        let of_session = calls.of_sessions.entry(session).or_default();
        of_session.insert(number, call);
        Ok(CallEntry {
            registry: self.clone(),
            session,
            number,
            cancelled,
            gave_up,
        })
    }

    /// Returns `true` if different calls of the session run here under this id.
    pub(in crate::downstream) fn share(&self, session: SessionKey, id: &str) -> bool {
        self.calls().share(session, id)
    }

    /// Cancels the call of the session with that id, however often it was sent. Of several calls with that id, none is
    /// cancelled: each may be what another user of the client waits for.
    pub(in crate::downstream) fn cancel(
        &self,
        session: SessionKey,
        id: &str,
        cause: CancelCause,
    ) -> Cancelled {
        let calls = self.calls();
        if calls.share(session, id) {
            return Cancelled::Carried;
        }
        let of_id = calls.of_session(session).filter(|call| *call.id == *id);
        let now = Instant::now();
        let cancelled = of_id.map(|call| {
            let waited = now.saturating_duration_since(call.began);
            // After a cancel by a person nothing is kept.
            let gives_up = cause.gives_up(waited) && !call.cancelled.is_cancelled();
            if gives_up && !call.gave_up.swap(true, Ordering::Relaxed) {
                self.giving_up.begin();
            }
            call.cancelled.cancel();
            match call.kind {
                // The job of the call decides what the server gets.
                CallKind::Resumable if call.gave_up.load(Ordering::Relaxed) => Cancelled::Carried,
                CallKind::Resumable if call.is_carried => Cancelled::Carried,
                CallKind::Resumable => Cancelled::AtServer,
                CallKind::Carried
                | CallKind::Joined
                | CallKind::AtModernServer
                | CallKind::Piped => Cancelled::Carried,
            }
        });
        // `max` also drives the lazy iterator to its end, so that every call of that id is cancelled.
        let cancelled = cancelled.max();
        cancelled.unwrap_or_else(|| {
            // Some clients cancel twice, for two reasons. The call runs on at the server under the same id.
            if calls.given_up.contains(session, id) {
                Cancelled::Carried
            } else {
                Cancelled::Nothing
            }
        })
    }

    /// Cancels every call of the session, which has ended.
    pub(in crate::downstream) fn end(&self, session: SessionKey) {
        for call in self.calls().of_session(session) {
            call.cancelled.cancel();
        }
    }

    /// Takes the question that the session answers: its id as it was asked, and where the answer goes. `None`: no
    /// call that runs here asked it.
    pub(in crate::downstream) fn take_question(
        &self,
        session: SessionKey,
        id: &RawValue,
    ) -> Option<(Box<str>, AnswerPath)> {
        let mut calls = self.calls();
        let found = calls.take_question(session, id.get());
        found.or_else(|| {
            // The client may escape a string in another way.
            let plain = string(id).map(|text| quote(&text))?;
            calls.take_question(session, &plain)
        })
    }

    /// The client of this session cannot be asked that. True where a call of another session asked the same here,
    /// and may still be answered.
    pub(in crate::downstream) fn others_ask(&self, session: SessionKey, question: &str) -> bool {
        let question = quote(question);
        let mut calls = self.calls();
        let of_session = calls.of_sessions.get_mut(&session);
        for call in of_session.into_iter().flat_map(BTreeMap::values_mut) {
            call.questions.remove(&*question);
        }
        let mut all = calls.of_sessions.values().flat_map(BTreeMap::values);
        all.any(|call| call.questions.contains_key(&*question))
    }
}

impl Calls {
    /// Returns `true` if different calls of the session run under this id.
    fn share(&self, session: SessionKey, id: &str) -> bool {
        let of_id = self.of_session(session).filter(|call| *call.id == *id);
        let running = of_id.filter(|call| !call.cancelled.is_cancelled());
        // One call may have entries of the other kinds beside its own.
        let mut calls = running.filter(|call| {
            let is_own = matches!(call.kind, CallKind::Carried | CallKind::AtModernServer);
            is_own || call.digest().is_some()
        });
        let first = calls.next().map(Call::digest);
        calls.any(|call| call.digest().is_none() || Some(call.digest()) != first)
    }

    fn of_session(&self, session: SessionKey) -> impl Iterator<Item = &Call> {
        let of_session = self.of_sessions.get(&session);
        of_session.into_iter().flat_map(BTreeMap::values)
    }

    fn take_question(&mut self, session: SessionKey, id: &str) -> Option<(Box<str>, AnswerPath)> {
        let of_session = self.of_sessions.get_mut(&session)?;
        let mut calls = of_session.values_mut();
        calls.find_map(|call| call.questions.remove_entry(id))
    }

    fn has_too_many(&self, session: SessionKey, kind: CallKind) -> bool {
        let of_kind = || self.of_session(session).filter(|call| call.kind == kind);
        let most = kind.of_a_session_max();
        most.is_some_and(|most| of_kind().count() >= most)
    }

    /// Returns the call, unless it left before.
    fn leave(&mut self, session: SessionKey, number: u64) -> Option<Call> {
        // Removed by its number: a newer call of the same id keeps its place. A second `leave` finds nothing.
        if let Entry::Occupied(mut of_session) = self.of_sessions.entry(session)
            && let Some(call) = of_session.get_mut().remove(&number)
        {
            if call.kind != CallKind::Resumable {
                self.count -= 1;
            }
            if call.gave_up.load(Ordering::Relaxed) {
                self.given_up.add(session, &call.id);
            }
            // Sessions come and go, so an empty one must not stay in the map.
            if of_session.get().is_empty() {
                of_session.remove();
            }
            return Some(call);
        }
        None
    }
}

impl Call {
    /// The digest of a `tools/call` that the same call can collect.
    fn digest(&self) -> Option<Digest> {
        self.collectable.as_ref().map(|it| it.digest)
    }

    /// Returns `true` if the call keeps others from this id. A client may use the id of a cancelled call again.
    fn has(&self, id: &str) -> bool {
        *self.id == *id && self.kind != CallKind::Resumable && !self.cancelled.is_cancelled()
    }
}

impl CallEntry {
    /// The client is asked this question, and its answer goes that way.
    pub(in crate::downstream) fn asks(&self, question: &str, path: AnswerPath) {
        self.update(|call| {
            call.questions.insert(question.into(), path);
        });
    }

    /// raincheck carries the call from now on, so a cancel by its id is not for the server. Returns `false` if a cancel came
    /// before.
    pub(in crate::downstream) fn is_carried(&self) -> bool {
        self.update(|call| call.is_carried = !call.cancelled.is_cancelled());
        !self.cancelled.is_cancelled()
    }

    /// The call passes on.
    pub(in crate::downstream) fn passes(&self) {
        self.update(|call| call.is_carried = false);
    }

    fn update(&self, change: impl FnOnce(&mut Call)) {
        let mut calls = self.registry.calls();
        let of_session = calls.of_sessions.get_mut(&self.session);
        if let Some(call) = of_session.and_then(|calls| calls.get_mut(&self.number)) {
            change(call);
        }
    }

    /// Resolves when the client cancels the call. Cancel safe.
    pub(in crate::downstream) async fn cancelled(&self) -> Leaving {
        self.cancelled.cancelled().await;
        if self.gave_up.load(Ordering::Relaxed) {
            Leaving::GaveUp
        } else {
            Leaving::Cancelled
        }
    }

    /// Returns `true` if the client has given the call up.
    pub(in crate::downstream) fn gave_up(&self) -> bool {
        self.cancelled.is_cancelled() && self.gave_up.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(in crate::downstream) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// The client cancelled the call through another replica.
    pub(in crate::downstream) fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Leaves the registry before the client receives the answer: the client may use the id again at once.
    pub(in crate::downstream) fn leave(&self) {
        let left = self.registry.calls().leave(self.session, self.number);
        if left.is_some_and(|call| call.gave_up.load(Ordering::Relaxed)) {
            self.registry.giving_up.end();
        }
    }
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
