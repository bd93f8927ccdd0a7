//! The requests that a process may not have read yet. Once nobody can read them any more, those in the pipe were never sent.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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

    /// Takes back the requests that nobody has read, if no process is left that could read from the pipe.
    pub(super) fn take_back(&self, pipe: impl AsFd) {
        let mut polled = [PollFd::new(&pipe, PollFlags::empty())];
        let polls = poll(&mut polled, Some(&Timespec::default()));
        if polls.is_err()
            || !polled
                .iter()
                .any(|it| it.revents().intersects(PollFlags::ERR | PollFlags::HUP))
        {
            return;
        }
        let Ok(unread) = rustix::io::ioctl_fionread(&pipe) else {
            return;
        };
        let read = self.written.saturating_sub(unread);
        for (_, request) in self.requests.iter().filter(|(at, _)| *at >= read) {
            request.take_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn what_nobody_can_read_any_more_was_not_sent() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mut unread = Unread::default();
        let requests = [(); 3].map(|()| Arc::new(SendState::default()));
        for request in &requests {
            assert!(request.begin());
            unread.begin(Arc::clone(request));
            writer.write_all(b"request\n").unwrap();
            unread.written += 8;
        }
        let mut some = [0; 10];
        reader.read_exact(&mut some).unwrap();
        let unsent = |unread: &Unread| {
            unread.take_back(&writer);
            requests.each_ref().map(|request| !request.begin())
        };
        assert_eq!(unsent(&unread), [false; 3]);
        drop(reader);
        assert_eq!(unsent(&unread), [false, false, true]);
    }
}
