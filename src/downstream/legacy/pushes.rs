//! The GET streams of legacy sessions that are open here, for what raincheck itself has to say on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::task::id::Caller;
use crate::task::state::Digest;

/// Messages that wait for the reader of one stream.
const MESSAGES_MAX: usize = 64;

/// A session of one caller, by the id that it has on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::downstream) struct SessionKey([u8; 16]);

impl SessionKey {
    pub(in crate::downstream) fn of(caller: &Caller, session_id: &str) -> Self {
        let caller = uuid::Uuid::from_bytes(*caller.as_bytes()).to_string();
        Self(*Digest::of(&[&caller, session_id]).as_bytes())
    }

    pub(in crate::downstream) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// All of this process.
#[derive(Debug, Default)]
pub struct Pushes {
    open: Mutex<HashMap<SessionKey, Open>>,
    /// How many streams were opened so far: the number of the next.
    streams: AtomicU64,
}

#[derive(Debug)]
struct Open {
    number: u64,
    messages: mpsc::Sender<String>,
}

/// What is to be said on one stream. Dropped, the stream is closed.
#[derive(Debug)]
pub(in crate::downstream) struct Pushed {
    pushes: Arc<Pushes>,
    key: SessionKey,
    number: u64,
    messages: mpsc::Receiver<String>,
}

impl Pushes {
    fn open_streams(&self) -> MutexGuard<'_, HashMap<SessionKey, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session's stream is open here from now on. One that was is so no more: its client came
    /// back before we saw it go.
    pub(in crate::downstream) fn open(self: &Arc<Self>, key: SessionKey) -> Pushed {
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let mut open = self.open_streams();
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        open.insert(
            key,
            Open {
                number,
                messages: sender,
            },
        );
        Pushed {
            pushes: Arc::clone(self),
            key,
            number,
            messages,
        }
    }

    /// Says a JSON-RPC message on the session's stream. False where none is open here, or its reader
    /// is slow.
    pub(in crate::downstream) fn push(&self, key: SessionKey, message: String) -> bool {
        let open = self.open_streams();
        open.get(&key)
            .is_some_and(|open| open.messages.try_send(message).is_ok())
    }

    /// The number of the session's stream that is open here: another stream has another.
    pub(in crate::downstream) fn stream(&self, key: SessionKey) -> Option<u64> {
        self.open_streams().get(&key).map(|open| open.number)
    }

    pub(in crate::downstream) fn is_open(&self, key: SessionKey) -> bool {
        self.open_streams().contains_key(&key)
    }
}

impl Pushed {
    /// Cancel safe. `None`: another stream took its place.
    pub(in crate::downstream) async fn next(&mut self) -> Option<String> {
        self.messages.recv().await
    }
}

impl Drop for Pushed {
    fn drop(&mut self) {
        let mut open = self.pushes.open_streams();
        if open
            .get(&self.key)
            .is_some_and(|open| open.number == self.number)
        {
            open.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_stream_of_a_session_hears() {
        let pushes = Arc::new(Pushes::default());
        let key = SessionKey::of(&Caller::from_bytes([1; 16]), "s");
        assert!(!pushes.push(key, "lost".into()));
        let mut first = pushes.open(key);
        let mut second = pushes.open(key);
        assert!(pushes.push(key, "heard".into()));
        assert_eq!(second.next().await.as_deref(), Some("heard"));
        assert_eq!(first.next().await, None);
        drop(first);
        assert!(pushes.is_open(key));
        drop(second);
        assert!(!pushes.is_open(key));
    }
}
