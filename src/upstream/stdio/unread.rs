//! The requests that a process may not have read yet. Once nobody can read them any more, those in the pipe were never sent.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::upstream::line::writer::SendState;

/// The bytes that a pipe holds. What was written before them was read.
const PIPE_MAX: u64 = 1 << 16;

/// The requests at the end of what was written, each with the position of its first byte.
#[derive(Debug, Default)]
pub(super) struct Unread {
    pub(super) written: u64,
    requests: VecDeque<(u64, Arc<SendState>)>,
}

impl Unread {
    /// Notes a request that is written next.
    pub(super) fn begin(&mut self, request: Arc<SendState>) {
        let oldest = self.written.saturating_sub(PIPE_MAX);
        let is_read = |(at, _): &(u64, _)| *at < oldest;
        while self.requests.front().is_some_and(is_read) {
            self.requests.pop_front();
        }
        self.requests.push_back((self.written, request));
    }

    /// Takes back the requests that begin within the last `left` bytes, which no process can read any more.
    pub(super) fn take_back(&self, left: u64) {
        let read = self.written.saturating_sub(left);
        for (_, request) in self.requests.iter().filter(|(at, _)| *at >= read) {
            request.take_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_can_read_any_more_was_not_sent() {
        let mut unread = Unread::default();
        let requests = [(); 3].map(|()| Arc::new(SendState::default()));
        for request in &requests {
            assert!(request.begin());
            unread.begin(Arc::clone(request));
            unread.written += 8;
        }
        // Two and a half requests are left; the half one was begun.
        unread.take_back(14);
        let unsent = requests.map(|request| !request.begin());
        assert_eq!(unsent, [false, false, true]);
    }
}
