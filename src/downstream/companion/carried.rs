//! Calls of legacy clients that are carried here under ids of ours, by the client's: a client that
//! cancels names its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::super::legacy::pushes::SessionKey;

/// Bounded by the calls that may be under way.
#[derive(Debug, Default, Clone)]
pub(in super::super) struct Carried(Arc<Mutex<HashMap<Key, CancellationToken>>>);

type Key = (SessionKey, Box<str>);

/// One of them. Dropped, it is carried no more.
#[derive(Debug)]
pub(in super::super) struct Carrying {
    all: Carried,
    key: Key,
    cancelled: CancellationToken,
}

impl Carried {
    fn calls(&self) -> MutexGuard<'_, HashMap<Key, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: a call with that id is under way.
    pub(in super::super) fn enter(&self, session: SessionKey, id: &RawValue) -> Option<Carrying> {
        let key = (session, Box::from(id.get()));
        let mut calls = self.calls();
        if calls.contains_key(&key) {
            return None;
        }
        let cancelled = CancellationToken::new();
        calls.insert(key.clone(), cancelled.clone());
        Some(Carrying {
            all: self.clone(),
            key,
            cancelled,
        })
    }

    /// False where no call with that id is carried here.
    pub(in super::super) fn cancel(&self, session: SessionKey, id: &RawValue) -> bool {
        let calls = self.calls();
        let call = calls.get(&(session, Box::from(id.get())));
        call.is_some_and(|cancelled| {
            cancelled.cancel();
            true
        })
    }
}

impl Carrying {
    /// Resolves when the client cancels it. Cancel safe.
    pub(in super::super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.all.calls().remove(&self.key);
    }
}
