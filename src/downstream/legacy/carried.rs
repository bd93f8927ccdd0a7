//! Calls of legacy clients that are carried here under ids of ours, by the client's: a client that
//! cancels names its own, and one that answers a question the server's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::pushes::SessionKey;
use crate::runner::seat::Answered;
use crate::upstream::Answer;

/// Bounded by the calls that may be under way.
#[derive(Debug, Default, Clone)]
pub struct Carried(Arc<Mutex<HashMap<Key, Call>>>);

#[derive(Debug, Default)]
struct Call {
    cancelled: CancellationToken,
    /// Questions that were relayed to the client, by the server's id; bounded by those that a call
    /// may ask.
    asked: HashMap<Box<str>, mpsc::Sender<Answered>>,
}

type Key = (SessionKey, Box<str>);

/// One of them. Dropped, it is carried no more.
#[derive(Debug)]
pub(in crate::downstream) struct Carrying {
    all: Carried,
    key: Key,
    cancelled: CancellationToken,
}

impl Carried {
    fn calls(&self) -> MutexGuard<'_, HashMap<Key, Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: a call with that id is under way.
    pub(in crate::downstream) fn enter(
        &self,
        session: SessionKey,
        id: &RawValue,
    ) -> Option<Carrying> {
        let key = (session, Box::from(id.get()));
        let mut calls = self.calls();
        if calls.contains_key(&key) {
            return None;
        }
        let call = Call::default();
        let cancelled = call.cancelled.clone();
        calls.insert(key.clone(), call);
        Some(Carrying {
            all: self.clone(),
            key,
            cancelled,
        })
    }

    /// False where no call with that id is carried here.
    pub(in crate::downstream) fn cancel(&self, session: SessionKey, id: &RawValue) -> bool {
        let calls = self.calls();
        let call = calls.get(&(session, Box::from(id.get())));
        call.is_some_and(|call| {
            call.cancelled.cancel();
            true
        })
    }

    /// False where no call that is carried here asked the session that.
    pub(in crate::downstream) fn answer(
        &self,
        session: SessionKey,
        id: &RawValue,
        answer: Answer,
    ) -> bool {
        let mut calls = self.calls();
        let mut of_session = calls.iter_mut().filter(|((of, _), _)| *of == session);
        let answers = of_session.find_map(|(_, call)| call.asked.remove(id.get()));
        let id = id.get().into();
        // There is room for the answers to all questions that may be asked.
        answers.is_some_and(|answers| answers.try_send(Answered { id, answer }).is_ok())
    }
}

impl Carrying {
    /// The client is asked that, and its answer goes there.
    pub(in crate::downstream) fn asks(&self, id: &RawValue, answers: mpsc::Sender<Answered>) {
        if let Some(call) = self.all.calls().get_mut(&self.key) {
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
        self.all.calls().remove(&self.key);
    }
}
