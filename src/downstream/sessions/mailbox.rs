//! raincheck's own messages for the GET streams of legacy sessions that are open on this replica. The newest stream
//! of a session gets the messages that no older stream has read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard};

use tokio::sync::{Notify, watch};

use crate::base::lock::Mutex;
use crate::downstream::inbound::session_key::SessionKey;
use crate::task::digest::Digest;

/// Messages that wait for the reader of one stream.
const MESSAGES_MAX: usize = 64;

/// A message that is among this many last messages of a stream is not sent on the stream again.
const SAID_MAX: usize = 256;

/// The mailboxes of this process.
#[derive(Debug, Default)]
pub struct Mailboxes {
    open: Mutex<HashMap<SessionKey, Mailbox>>,
    /// The number of the stream that was opened last, of any session.
    opened: watch::Sender<u64>,
}

#[derive(Debug)]
struct Mailbox {
    number: u64,
    unread: VecDeque<String>,
    /// The last messages of the stream, the oldest first.
    said: VecDeque<Digest>,
    reader: Arc<Notify>,
}

/// Reads the messages for one stream. Dropped, the stream is closed.
#[derive(Debug)]
pub(in crate::downstream) struct MailReader {
    mailboxes: Arc<Mailboxes>,
    key: SessionKey,
    number: u64,
    reader: Arc<Notify>,
    /// The stream replaced an older one, which may have been dead for a while.
    pub(in crate::downstream) replaces: bool,
}

impl Mailboxes {
    fn open_streams(&self) -> MutexGuard<'_, HashMap<SessionKey, Mailbox>> {
        self.open.lock()
    }

    /// Opens a stream of the session, which replaces an older one: a client often comes back before raincheck notices
    /// that its old connection is dead. The new stream gets the unread messages of the old one.
    pub(in crate::downstream) fn open(self: &Arc<Self>, key: SessionKey) -> MailReader {
        let mut open = self.open_streams();
        let mut number = 0;
        self.opened.send_modify(|opened| {
            *opened += 1;
            number = *opened;
        });
        let older = open.remove(&key);
        let replaces = older.is_some();
        if let Some(older) = &older {
            // Wakes the older reader. It finds another number in the table and ends.
            older.reader.notify_one();
        }
        let reader = Arc::new(Notify::new());
        let unread = older.map(|older| older.unread).unwrap_or_default();
        let now = Mailbox {
            number,
            // Only unread messages count as sent here: the others may never have arrived on the older stream.
            said: unread.iter().map(|message| digest(message)).collect(),
            unread,
            reader: Arc::clone(&reader),
        };
        open.insert(key, now);
        MailReader {
            mailboxes: Arc::clone(self),
            key,
            number,
            reader,
            replaces,
        }
    }

    /// Puts a JSON-RPC message on the session's stream, once for each stream. False if no stream is open here, or too
    /// many messages are unread.
    pub(in crate::downstream) fn push(&self, key: SessionKey, message: String) -> bool {
        let mut open = self.open_streams();
        let Some(open) = open.get_mut(&key) else {
            return false;
        };
        let digest = digest(&message);
        if open.said.contains(&digest) {
            // This counts as success, because callers try again after `false` and the stream has the message already.
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

    /// Changes when a stream is opened, of any session.
    pub(in crate::downstream) fn opened(&self) -> watch::Receiver<u64> {
        self.opened.subscribe()
    }

    /// The number of the session's open stream. Each stream has a number of its own.
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

impl MailReader {
    /// The next message. `None`: a newer stream replaced this one. Cancel safe.
    pub(in crate::downstream) async fn next(&mut self) -> Option<String> {
        loop {
            {
                let mut open = self.mailboxes.open_streams();
                let open = open.get_mut(&self.key);
                // A newer stream has another number. It has taken over all unread messages.
                let open = open.filter(|open| open.number == self.number)?;
                if let Some(message) = open.unread.pop_front() {
                    return Some(message);
                }
            }
            self.reader.notified().await;
        }
    }
}

impl Drop for MailReader {
    fn drop(&mut self) {
        let mut open = self.mailboxes.open_streams();
        // Without this check, the late end of an old connection would close the stream that replaced it.
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
        let mailboxes = Arc::new(Mailboxes::default());
        let key = key();
        assert!(!mailboxes.push(key, "lost".into()));
        let mut first = mailboxes.open(key);
        assert!(mailboxes.push(key, "read".into()));
        assert!(mailboxes.push(key, "unread".into()));
        assert_eq!(first.next().await.as_deref(), Some("read"));
        let mut second = mailboxes.open(key);
        assert!(!first.replaces && second.replaces);
        assert!(mailboxes.push(key, "heard".into()));
        assert_eq!(second.next().await.as_deref(), Some("unread"));
        assert_eq!(second.next().await.as_deref(), Some("heard"));
        assert_eq!(first.next().await, None);
        drop(first);
        assert!(mailboxes.is_open(key));
        drop(second);
        assert!(!mailboxes.is_open(key));
    }

    #[tokio::test]
    async fn a_stream_says_nothing_twice() {
        let mailboxes = Arc::new(Mailboxes::default());
        let key = key();
        let first = mailboxes.open(key);
        assert!(mailboxes.push(key, "1".into()));
        let mut second = mailboxes.open(key);
        // Said again, because the first may not have arrived.
        assert!(mailboxes.push(key, "1".into()));
        assert_eq!(second.next().await.as_deref(), Some("1"));
        assert!(mailboxes.push(key, "1".into()));
        assert!(mailboxes.push(key, "2".into()));
        assert_eq!(second.next().await.as_deref(), Some("2"));
        drop(first);
    }

    #[test]
    fn a_slow_reader_is_waited_for() {
        let mailboxes = Arc::new(Mailboxes::default());
        let _open = mailboxes.open(key());
        let said = (0..=MESSAGES_MAX).filter(|n| mailboxes.push(key(), n.to_string()));
        assert_eq!(said.count(), MESSAGES_MAX);
    }
}
