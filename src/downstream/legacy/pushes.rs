//! The GET streams of legacy sessions that are open here, for what raincheck itself has to say on them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use tokio::sync::Notify;

use crate::downstream::inbound::session_key::SessionKey;
use crate::lock::Mutex;
use crate::task::state::Digest;

/// Messages that wait for the reader of one stream.
const MESSAGES_MAX: usize = 64;

/// So many of the last messages of one stream are not said again on it.
const SAID_MAX: usize = 256;

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
    unread: VecDeque<String>,
    /// What was said, in order of time.
    said: VecDeque<Digest>,
    reader: Arc<Notify>,
}

/// What is to be said on one stream. Dropped, the stream is closed.
#[derive(Debug)]
pub(in crate::downstream) struct Pushed {
    pushes: Arc<Pushes>,
    key: SessionKey,
    number: u64,
    reader: Arc<Notify>,
    /// It took the place of another, which may have been dead for a while.
    pub(in crate::downstream) replaces: bool,
}

impl Pushes {
    fn open_streams(&self) -> MutexGuard<'_, HashMap<SessionKey, Open>> {
        self.open.lock()
    }

    /// The session's stream is open here from now on. One that was is so no more: its client came
    /// back before we saw it go. What nobody has read of it is said on the new one.
    pub(in crate::downstream) fn open(self: &Arc<Self>, key: SessionKey) -> Pushed {
        let mut open = self.open_streams();
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        let older = open.remove(&key);
        let replaces = older.is_some();
        if let Some(older) = &older {
            older.reader.notify_one();
        }
        let reader = Arc::new(Notify::new());
        let unread = older.map(|older| older.unread).unwrap_or_default();
        let now = Open {
            number,
            said: unread.iter().map(|message| digest(message)).collect(),
            unread,
            reader: Arc::clone(&reader),
        };
        open.insert(key, now);
        Pushed {
            pushes: Arc::clone(self),
            key,
            number,
            reader,
            replaces,
        }
    }

    /// Says a JSON-RPC message on the session's stream, on one stream once. False where none is open
    /// here, or its reader is slow.
    pub(in crate::downstream) fn push(&self, key: SessionKey, message: String) -> bool {
        let mut open = self.open_streams();
        let Some(open) = open.get_mut(&key) else {
            return false;
        };
        let digest = digest(&message);
        if open.said.contains(&digest) {
            return true;
        }
        if open.unread.len() >= MESSAGES_MAX {
            return false;
        }
        if open.said.len() >= SAID_MAX {
            open.said.pop_front();
        }
        open.said.push_back(digest);
        open.unread.push_back(message);
        open.reader.notify_one();
        true
    }

    /// The number of the session's stream that is open here: another stream has another.
    pub(in crate::downstream) fn stream(&self, key: SessionKey) -> Option<u64> {
        self.open_streams().get(&key).map(|open| open.number)
    }

    pub(in crate::downstream) fn is_open(&self, key: SessionKey) -> bool {
        self.open_streams().contains_key(&key)
    }
}

fn digest(message: &str) -> Digest {
    Digest::of(&[message])
}

impl Pushed {
    /// Cancel safe. `None`: another stream took its place.
    pub(in crate::downstream) async fn next(&mut self) -> Option<String> {
        loop {
            {
                let mut open = self.pushes.open_streams();
                let open = open.get_mut(&self.key);
                let open = open.filter(|open| open.number == self.number)?;
                if let Some(message) = open.unread.pop_front() {
                    return Some(message);
                }
            }
            self.reader.notified().await;
        }
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
    use crate::task::id::Caller;

    fn key() -> SessionKey {
        SessionKey::of(&Caller::from_bytes([1; 16]), "s")
    }

    #[tokio::test]
    async fn the_last_stream_of_a_session_hears() {
        let pushes = Arc::new(Pushes::default());
        let key = key();
        assert!(!pushes.push(key, "lost".into()));
        let mut first = pushes.open(key);
        assert!(pushes.push(key, "read".into()));
        assert!(pushes.push(key, "unread".into()));
        assert_eq!(first.next().await.as_deref(), Some("read"));
        let mut second = pushes.open(key);
        assert!(!first.replaces && second.replaces);
        assert!(pushes.push(key, "heard".into()));
        assert_eq!(second.next().await.as_deref(), Some("unread"));
        assert_eq!(second.next().await.as_deref(), Some("heard"));
        assert_eq!(first.next().await, None);
        drop(first);
        assert!(pushes.is_open(key));
        drop(second);
        assert!(!pushes.is_open(key));
    }

    #[tokio::test]
    async fn a_stream_says_nothing_twice() {
        let pushes = Arc::new(Pushes::default());
        let key = key();
        let first = pushes.open(key);
        assert!(pushes.push(key, "1".into()));
        let mut second = pushes.open(key);
        // Said again, because the first may not have arrived.
        assert!(pushes.push(key, "1".into()));
        assert_eq!(second.next().await.as_deref(), Some("1"));
        assert!(pushes.push(key, "1".into()));
        assert!(pushes.push(key, "2".into()));
        assert_eq!(second.next().await.as_deref(), Some("2"));
        drop(first);
    }

    #[test]
    fn a_slow_reader_is_waited_for() {
        let pushes = Arc::new(Pushes::default());
        let _open = pushes.open(key());
        let said = (0..=MESSAGES_MAX).filter(|n| pushes.push(key(), n.to_string()));
        assert_eq!(said.count(), MESSAGES_MAX);
    }
}
