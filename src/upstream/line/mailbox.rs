//! What a server says that belongs to no request of its client: kept until the client reads it, by
//! one reader at a time, which is the newest.
//!
//! A client whose network was cut comes back before anybody sees that its old stream is dead.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

/// Messages that wait for the reader.
const MESSAGES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    messages: VecDeque<String>,
    reader: Option<ReaderId>,
    is_over: bool,
}

/// One reader, known by the place that it waits at.
#[derive(Debug, Clone, Default)]
pub(super) struct ReaderId(Arc<Notify>);

/// What a reader finds.
pub(super) enum Mail {
    Message(String),
    Nothing,
    /// There will be nothing more for this reader.
    End,
}

impl Mailbox {
    pub(super) fn is_read(&self) -> bool {
        self.reader.is_some()
    }

    /// The newest reader; the one before it has reached its end.
    pub(super) fn read(&mut self) -> ReaderId {
        let reader = ReaderId::default();
        if let Some(older) = self.reader.replace(reader.clone()) {
            older.0.notify_one();
        }
        reader
    }

    /// That reader reads no more. What it did not read waits for the next.
    pub(super) fn leave(&mut self, reader: &ReaderId) {
        if self.is_of(reader) {
            self.reader = None;
        }
    }

    /// False where too much waits, or the server has said its last.
    pub(super) fn say(&mut self, message: &str) -> bool {
        if self.is_over || self.messages.len() >= MESSAGES_MAX {
            return false;
        }
        self.messages.push_back(message.to_owned());
        self.wake();
        true
    }

    /// The server has said its last.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.wake();
    }

    pub(super) fn next(&mut self, reader: &ReaderId) -> Mail {
        if !self.is_of(reader) {
            return Mail::End;
        }
        match self.messages.pop_front() {
            Some(message) => Mail::Message(message),
            None if self.is_over => Mail::End,
            None => Mail::Nothing,
        }
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
    /// Resolves when there may be something to find, also when that came before. Cancel safe.
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
        let mut unread = Mailbox::default();
        let older = unread.read();
        assert!(unread.say("1") && unread.say("2"));
        assert_eq!(message(unread.next(&older)).as_deref(), Some("1"));
        let newer = unread.read();
        assert!(matches!(unread.next(&older), Mail::End));
        assert_eq!(message(unread.next(&newer)).as_deref(), Some("2"));
        assert!(matches!(unread.next(&newer), Mail::Nothing));
        // A reader that was replaced has nothing to leave.
        unread.leave(&older);
        assert!(unread.is_read());
        unread.leave(&newer);
        assert!(!unread.is_read() && unread.say("3"));
        unread.end();
        let last = unread.read();
        assert_eq!(message(unread.next(&last)).as_deref(), Some("3"));
        assert!(matches!(unread.next(&last), Mail::End));
        assert!(!unread.say("4"));
    }

    #[test]
    fn it_is_bounded() {
        let mut unread = Mailbox::default();
        let said = (0..=MESSAGES_MAX).filter(|_| unread.say("x")).count();
        assert_eq!(said, MESSAGES_MAX);
    }
}
