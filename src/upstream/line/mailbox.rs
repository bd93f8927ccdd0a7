//! The messages of a server that belong to no request of its client. They wait until the client reads them. Of
//! several readers only the newest reads. A client whose network was cut comes back before anybody sees that
//! its old stream is dead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::upstream::reader_queue::{Full, OWN_PATIENCE};

/// Messages that wait for the reader. The line is not read while more wait, if there is a reader.
const MESSAGES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct LineMailbox {
    messages: VecDeque<String>,
    reader: Option<ReaderId>,
    /// There was a reader, and its client has asked nothing since it left.
    was_read: bool,
    is_over: bool,
    /// `true` if the line waits for the reader.
    is_full: watch::Sender<bool>,
    /// The reader was waited for in vain.
    is_slow: Arc<AtomicBool>,
}

/// Tells one reader from another, and wakes it.
#[derive(Debug, Clone, Default)]
pub(super) struct ReaderId(Arc<Notify>);

/// An entry of the mailbox, for its reader.
pub(super) enum Mail {
    Message(String),
    Nothing,
    /// The mailbox has ended, or a newer reader has taken over.
    End,
}

impl LineMailbox {
    pub(super) fn is_read(&self) -> bool {
        self.reader.is_some()
    }

    /// Returns `true` if the last reader has left, and its client with it, as far as is known.
    pub(super) fn is_left(&self) -> bool {
        self.was_read && !self.is_read()
    }

    /// Notes that the client asks: then it has not left, although it may listen no more.
    pub(super) fn is_asked(&mut self) {
        self.was_read = self.is_read();
    }

    /// Begins to read. The reader before reaches its end.
    pub(super) fn read(&mut self) -> ReaderId {
        let reader = ReaderId::default();
        self.was_read = true;
        if let Some(older) = self.reader.replace(reader.clone()) {
            older.0.notify_one();
        }
        // The new reader has patience of its own, although the one before was slow.
        self.moved();
        reader
    }

    /// The reader stops. What it did not read waits for the next reader.
    pub(super) fn leave(&mut self, reader: &ReaderId) {
        if self.is_of(reader) {
            self.reader = None;
            self.moved();
        }
    }

    /// Puts a message into the mailbox. False if too many wait already, or if the mailbox has ended.
    pub(super) fn say(&mut self, message: &str) -> bool {
        if self.is_over || self.messages.len() >= MESSAGES_MAX {
            return false;
        }
        self.messages.push_back(message.to_owned());
        self.is_full.send_replace(self.has_slow_reader());
        self.wake();
        true
    }

    /// No message follows. The reader still finds those that wait.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.wake();
    }

    pub(super) fn next(&mut self, reader: &ReaderId) -> Mail {
        if !self.is_of(reader) {
            return Mail::End;
        }
        match self.messages.pop_front() {
            Some(message) => {
                self.moved();
                Mail::Message(message)
            }
            None if self.is_over => Mail::End,
            None => Mail::Nothing,
        }
    }

    /// Returns the wait for the reader, if as many messages wait as may.
    pub(super) fn full(&self) -> Option<Full> {
        if !self.has_slow_reader() || self.is_slow.load(Ordering::Relaxed) {
            return None;
        }
        // The wait borrows nothing, so that the table of the session is not locked meanwhile.
        let (mut is_full, is_slow) = (self.is_full.subscribe(), Arc::clone(&self.is_slow));
        let waiting = async move {
            let has_room = is_full.wait_for(|is_full| !is_full);
            if timeout(OWN_PATIENCE, has_room).await.is_err() {
                is_slow.store(true, Ordering::Relaxed);
            }
        };
        Some(waiting.boxed())
    }

    fn has_slow_reader(&self) -> bool {
        self.messages.len() >= MESSAGES_MAX && self.reader.is_some()
    }

    fn moved(&self) {
        self.is_slow.store(false, Ordering::Relaxed);
        self.is_full.send_replace(self.has_slow_reader());
    }

    fn is_of(&self, reader: &ReaderId) -> bool {
        let now = self.reader.as_ref();
        now.is_some_and(|now| Arc::ptr_eq(&now.0, &reader.0))
    }

    fn wake(&self) {
        if let Some(reader) = &self.reader {
            reader.0.notify_one();
        }
    }
}

impl ReaderId {
    /// Resolves when there may be something to read, also if that came before the call. Cancel safe.
    pub(super) async fn woken(&self) {
        self.0.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(found: Mail) -> Option<String> {
        match found {
            Mail::Message(message) => Some(message),
            Mail::Nothing | Mail::End => None,
        }
    }

    #[test]
    fn the_newest_reader_has_what_the_older_did_not_read() {
        let mut unread = LineMailbox::default();
        let older = unread.read();
        assert!(unread.say("1") && unread.say("2"));
        assert_eq!(message(unread.next(&older)).as_deref(), Some("1"));
        let newer = unread.read();
        assert!(matches!(unread.next(&older), Mail::End));
        assert_eq!(message(unread.next(&newer)).as_deref(), Some("2"));
        assert!(matches!(unread.next(&newer), Mail::Nothing));
        // A reader that was replaced has nothing to leave.
        unread.leave(&older);
        assert!(unread.is_read() && !unread.is_left());
        unread.leave(&newer);
        assert!(!unread.is_read() && unread.is_left() && unread.say("3"));
        unread.is_asked();
        assert!(!unread.is_left());
        unread.end();
        let last = unread.read();
        assert_eq!(message(unread.next(&last)).as_deref(), Some("3"));
        assert!(matches!(unread.next(&last), Mail::End));
        assert!(!unread.say("4"));
    }

    #[tokio::test(start_paused = true)]
    async fn its_reader_is_waited_for_until_it_reads_nothing_for_long() {
        let mut unread = LineMailbox::default();
        while unread.say("x") {
            assert!(unread.full().is_none());
        }
        let reader = unread.read();
        let full = unread.full().unwrap();
        assert_eq!(message(unread.next(&reader)).as_deref(), Some("x"));
        full.await;
        assert!(unread.full().is_none() && unread.say("y"));
        unread.full().unwrap().await;
        assert!(unread.full().is_none(), "it was waited for once");
        assert_eq!(message(unread.next(&reader)).as_deref(), Some("x"));
        assert!(unread.say("z"));
        let full = unread.full().unwrap();
        unread.leave(&reader);
        full.await;
        assert!(unread.full().is_none());
    }

    #[test]
    fn it_is_bounded() {
        let mut unread = LineMailbox::default();
        let said = (0..=MESSAGES_MAX).filter(|_| unread.say("x")).count();
        assert_eq!(said, MESSAGES_MAX);
    }
}
