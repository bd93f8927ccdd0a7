//! Calls of legacy clients that are carried here under ids of ours, by the client's: a client that
//! cancels names its own, and one that answers a question the server's.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::pushes::SessionKey;
use crate::lock::Mutex;
use crate::mcp::json::quote;
use crate::runner::responder::RelayedAnswer;
use crate::upstream::Answer;

/// Calls carried at once, those among them that wait for another's: these take no place among the
/// calls that may be under way.
const CARRIED_MAX: usize = 16 * 1024;

#[derive(Debug, Clone)]
pub struct Carried {
    calls: Arc<Mutex<Calls>>,
    max: usize,
}

#[derive(Debug, Default)]
struct Calls {
    /// By session and number.
    of_sessions: HashMap<SessionKey, BTreeMap<u64, Call>>,
    count: usize,
    last: u64,
}

#[derive(Debug)]
struct Call {
    /// The client's.
    id: Box<str>,
    cancelled: CancellationToken,
    /// Questions that were relayed to the client, by the server's id; bounded by those that a call
    /// may ask.
    asked: HashMap<Box<str>, mpsc::Sender<RelayedAnswer>>,
}

/// One of them. Dropped, it is carried no more.
#[derive(Debug)]
pub(in crate::downstream) struct Carrying {
    all: Carried,
    session: SessionKey,
    number: u64,
    cancelled: CancellationToken,
}

/// What the id of a call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Ids {
    /// It is one call's.
    Differ,
    /// A client that sends its request once more, to the letter, uses it again.
    MayRepeat,
}

/// Why a call is not carried.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::downstream) enum Refused {
    /// Its session has one of that id already.
    SameId,
    Full,
}

impl Default for Carried {
    fn default() -> Self {
        Self::new(CARRIED_MAX)
    }
}

impl Carried {
    fn new(max: usize) -> Self {
        Self {
            calls: Arc::default(),
            max,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock()
    }

    pub(in crate::downstream) fn enter(
        &self,
        session: SessionKey,
        id: &RawValue,
        ids: Ids,
    ) -> Result<Carrying, Refused> {
        let mut calls = self.calls();
        let is_taken = || calls.of_session(session).any(|call| *call.id == *id.get());
        if ids == Ids::Differ && is_taken() {
            return Err(Refused::SameId);
        }
        if calls.count >= self.max {
            return Err(Refused::Full);
        }
        calls.count += 1;
        calls.last += 1;
        let number = calls.last;
        let cancelled = CancellationToken::new();
        let call = Call {
            id: id.get().into(),
            cancelled: cancelled.clone(),
            asked: HashMap::new(),
        };
        let of_session = calls.of_sessions.entry(session).or_default();
        of_session.insert(number, call);
        Ok(Carrying {
            all: self.clone(),
            session,
            number,
            cancelled,
        })
    }

    /// False where no call with that id is carried here.
    pub(in crate::downstream) fn cancel(&self, session: SessionKey, id: &RawValue) -> bool {
        let calls = self.calls();
        let mut is_ours = false;
        for call in calls.of_session(session) {
            if *call.id == *id.get() {
                call.cancelled.cancel();
                is_ours = true;
            }
        }
        is_ours
    }

    /// The session is over: nobody waits for its calls.
    pub(in crate::downstream) fn end(&self, session: SessionKey) {
        for call in self.calls().of_session(session) {
            call.cancelled.cancel();
        }
    }

    /// The session cannot be asked that. True where another session was asked the same here, and may
    /// answer it yet.
    pub(in crate::downstream) fn is_for_others(&self, session: SessionKey, question: &str) -> bool {
        let question = quote(question);
        let mut calls = self.calls();
        let of_session = calls.of_sessions.get_mut(&session);
        for call in of_session.into_iter().flat_map(BTreeMap::values_mut) {
            call.asked.remove(&*question);
        }
        let mut all = calls.of_sessions.values().flat_map(BTreeMap::values);
        all.any(|call| call.asked.contains_key(&*question))
    }

    /// False where no call that is carried here asked the session that.
    pub(in crate::downstream) fn answer(
        &self,
        session: SessionKey,
        id: &RawValue,
        answer: Answer,
    ) -> bool {
        let mut calls = self.calls();
        let mut of_session = calls
            .of_sessions
            .get_mut(&session)
            .into_iter()
            .flat_map(BTreeMap::values_mut);
        let answers = of_session.find_map(|call| call.asked.remove(id.get()));
        let id = id.get().into();
        // There is room for the answers to all questions that may be asked.
        answers.is_some_and(|answers| answers.try_send(RelayedAnswer { id, answer }).is_ok())
    }
}

impl Calls {
    fn of_session(&self, session: SessionKey) -> impl Iterator<Item = &Call> {
        let of_session = self.of_sessions.get(&session);
        of_session.into_iter().flat_map(BTreeMap::values)
    }

    fn leave(&mut self, session: SessionKey, number: u64) {
        if let Entry::Occupied(mut of_session) = self.of_sessions.entry(session)
            && of_session.get_mut().remove(&number).is_some()
        {
            self.count -= 1;
            if of_session.get().is_empty() {
                of_session.remove();
            }
        }
    }
}

impl Carrying {
    /// The client is asked that, and its answer goes there.
    pub(in crate::downstream) fn asks(&self, id: &RawValue, answers: mpsc::Sender<RelayedAnswer>) {
        let mut calls = self.all.calls();
        let of_session = calls.of_sessions.get_mut(&self.session);
        if let Some(call) = of_session.and_then(|calls| calls.get_mut(&self.number)) {
            call.asked.insert(id.get().into(), answers);
        }
    }

    /// Resolves when the client cancels it. Cancel safe.
    pub(in crate::downstream) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.all.calls().leave(self.session, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json::raw;
    use crate::task::id::Caller;

    #[test]
    fn all_sessions_together_are_bounded() {
        let carried = Carried::new(2);
        let of = |name| SessionKey::of(&Caller::from_bytes([1; 16]), name);
        let id = raw("1".to_owned()).unwrap();
        let enter = |name, ids| carried.enter(of(name), &id, ids);
        let one = enter("a", Ids::Differ).unwrap();
        assert_eq!(enter("a", Ids::Differ).unwrap_err(), Refused::SameId);
        let _two = enter("a", Ids::MayRepeat).unwrap();
        assert_eq!(enter("b", Ids::Differ).unwrap_err(), Refused::Full);
        drop(one);
        let three = enter("b", Ids::Differ).unwrap();
        assert!(carried.cancel(of("b"), &id));
        drop(three);
        assert!(!carried.cancel(of("b"), &id));
    }

    #[test]
    fn who_cancels_an_id_cancels_all_that_were_sent_with_it() {
        let carried = Carried::default();
        let session = SessionKey::of(&Caller::from_bytes([1; 16]), "a");
        let id = raw("1".to_owned()).unwrap();
        let enter = || carried.enter(session, &id, Ids::MayRepeat).unwrap();
        let (one, two, three) = (enter(), enter(), enter());
        drop(two);
        assert!(carried.cancel(session, &id));
        assert!(one.cancelled.is_cancelled() && three.cancelled.is_cancelled());
    }
}
