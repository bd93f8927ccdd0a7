//! The log's way to standard error. Nothing waits for the reader of the log: lines wait in a bounded buffer, and one thread
//! writes them. Lines beyond the bound are dropped and counted.
//!
//! A rare line is written at once, by the thread that says it, if that takes no wait: so it is out before an answer that its
//! client may act on, and before whatever may end the process. Lines that come with every request gather, so that
//! many of them are one write.

use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::warn;

use super::stamp::Stamp;
use crate::lock::Mutex;
use crate::telemetry::metrics::METRICS;

/// The most bytes that wait.
const WAITING_MAX: usize = 1 << 20;

/// So many bytes are worth a write of their own.
const ENOUGH: usize = 64 << 10;

/// How long lines gather.
const GATHERING: Duration = Duration::from_millis(100);

/// How long the last lines of the process may take. A reader that does not read must not keep the process alive.
const LAST_LINES: Duration = Duration::from_millis(500);

/// A pipe that has any room takes so many bytes without a wait: `PIPE_BUF`.
const AT_ONCE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };

/// Standard error, and what waits for it.
#[derive(Debug)]
pub(super) struct Output {
    to: File,
    /// Whether it is a file: a write to it waits for no reader.
    is_file: bool,
    waiting: Mutex<Waiting>,
    /// There is something to write.
    comes: Condvar,
    /// Something was written.
    gone: Condvar,
    /// Who holds the lock writes, and takes what waits into this buffer. So lines keep their order.
    writing: Mutex<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Whether the lines must not wait for others.
    is_urgent: bool,
    is_writing: bool,
    /// Lines that were dropped, and that the log was not told of yet.
    dropped: u64,
    stamp: Stamp,
}

impl Waiting {
    /// Whether there is room for a line of so many bytes. The line is lost if not.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.lines.len() + bytes <= WAITING_MAX;
        if !has_room {
            self.lost(1);
        }
        has_room
    }

    fn lost(&mut self, lines: u64) {
        self.dropped += lines;
        METRICS.process.log_lines_dropped.inc_by(lines);
    }
}

impl Output {
    pub(super) fn new(to: File) -> Self {
        Self {
            is_file: to.metadata().is_ok_and(|it| it.is_file()),
            to,
            waiting: Mutex::default(),
            comes: Condvar::new(),
            gone: Condvar::new(),
            writing: Mutex::default(),
        }
    }

    /// Starts the thread that writes.
    pub(super) fn start(&'static self) -> io::Result<()> {
        let writer = thread::Builder::new().name("log".to_owned());
        writer.spawn(|| {
            loop {
                let lines = self.write_next();
                if lines > 0 {
                    warn!(
                        lines,
                        "lines of the log were dropped: standard error did not take them in time"
                    );
                }
            }
        })?;
        Ok(())
    }

    /// Writes the line and all that waits, or lets the thread do it if that takes a wait.
    pub(super) fn say_now(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if !waiting.has_room(line.len()) {
            return;
        }
        waiting.lines.extend_from_slice(line);
        waiting.is_urgent = true;
        drop(waiting);
        if !self.write_without_wait() {
            self.comes.notify_one();
        }
    }

    /// Writes a line with others, soon: these texts, with the time `now_ns` between them.
    pub(super) fn say_soon(&self, before: &str, now_ns: u64, after: &str) {
        let mut waiting = self.waiting.lock();
        if !waiting.has_room(before.len() + Stamp::BYTES + after.len()) {
            return;
        }
        let Waiting { lines, stamp, .. } = &mut *waiting;
        let had = lines.len();
        lines.extend_from_slice(before.as_bytes());
        stamp.write(lines, now_ns);
        lines.extend_from_slice(after.as_bytes());
        let is_enough = had < ENOUGH && lines.len() >= ENOUGH;
        drop(waiting);
        if had == 0 || is_enough {
            self.comes.notify_one();
        }
    }

    /// Waits until all lines are written, but not for long.
    pub(super) fn finish(&self) {
        let until = Instant::now() + LAST_LINES;
        let mut waiting = self.waiting.lock();
        waiting.is_urgent = true;
        self.comes.notify_one();
        while waiting.is_writing || !waiting.lines.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting = wait(&self.gone, waiting, left);
        }
    }

    /// Whether all that waits was written. False: it may take a wait, or another thread writes.
    fn write_without_wait(&self) -> bool {
        let Some(mut buffer) = self.writing.try_lock() else {
            return false;
        };
        let waiting = self.waiting.lock();
        // The thread tells of what was dropped.
        let fits = self.is_file || (waiting.lines.len() <= AT_ONCE && self.is_ready());
        if !fits || waiting.dropped > 0 {
            return false;
        }
        self.write(waiting, &mut buffer);
        true
    }

    /// Whether a write of a few bytes waits for nobody. A pipe whose reader is gone fails at once.
    fn is_ready(&self) -> bool {
        let mut polled = [PollFd::new(&self.to, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Waits for lines, and writes them. Returns how many were dropped before that, to be told.
    fn write_next(&self) -> u64 {
        self.gather();
        let mut buffer = self.writing.lock();
        let waiting = self.waiting.lock();
        if waiting.lines.is_empty() {
            return 0;
        }
        if self.write(waiting, &mut buffer) {
            mem::take(&mut self.waiting.lock().dropped)
        } else {
            0
        }
    }

    /// Waits until there is something to write, and until that is enough, urgent or old.
    fn gather(&self) {
        let mut waiting = self.waiting.lock();
        while waiting.lines.is_empty() {
            waiting = self
                .comes
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + GATHERING;
        while !waiting.is_urgent && waiting.lines.len() < ENOUGH {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting = wait(&self.comes, waiting, left);
        }
    }

    /// Writes all that waits. Returns whether standard error took it.
    fn write(&self, mut waiting: MutexGuard<'_, Waiting>, buffer: &mut Vec<u8>) -> bool {
        mem::swap(&mut waiting.lines, buffer);
        waiting.is_urgent = false;
        waiting.is_writing = true;
        drop(waiting);
        let is_taken = (&self.to).write_all(buffer).is_ok();
        let mut waiting = self.waiting.lock();
        waiting.is_writing = false;
        if !is_taken {
            let ends = buffer.split(|byte| *byte == b'\n').count();
            waiting.lost(ends.saturating_sub(1) as u64);
        }
        drop(waiting);
        self.gone.notify_all();
        buffer.clear();
        buffer.shrink_to(ENOUGH);
        is_taken
    }
}

fn wait<'w>(
    event: &Condvar,
    waiting: MutexGuard<'w, Waiting>,
    left: Duration,
) -> MutexGuard<'w, Waiting> {
    let waited = event.wait_timeout(waiting, left);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// Standard error as it is when logging begins, whatever later becomes of its number.
pub(super) fn standard_error() -> io::Result<File> {
    Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _, pipe};
    use std::os::fd::OwnedFd;

    use super::*;

    /// An output without its thread, to a pipe.
    fn piped() -> (Output, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        (Output::new(OwnedFd::from(writer).into()), reader)
    }

    fn read(reader: &mut PipeReader) -> String {
        let mut bytes = [0; AT_ONCE];
        let count = reader.read(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_rare_line_is_out_at_once_with_what_gathered_before_it() {
        let (output, mut reader) = piped();
        output.say_soon("[", 0, "] one\n");
        assert!(!output.waiting.lock().lines.is_empty(), "it waits");
        output.say_now(b"two\n");
        assert_eq!(
            read(&mut reader),
            "[1970-01-01T00:00:00.000000Z] one\ntwo\n"
        );
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up_and_what_is_lost_is_counted() {
        let (output, mut reader) = piped();
        let line = [b'x'; 1023];
        let line = [&line[..], b"\n"].concat();
        // More than a pipe and the buffer take.
        let lines = 3 * WAITING_MAX / line.len();
        for _ in 0..lines {
            output.say_now(&line);
        }
        let dropped = output.waiting.lock().dropped;
        assert!(dropped > 0);
        let reading = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text.lines().count() as u64
        });
        assert_eq!(output.write_next(), dropped, "told once it flows");
        output.say_now(b"flows\n");
        assert_eq!(output.waiting.lock().dropped, 0);
        if !output.waiting.lock().lines.is_empty() {
            output.write_next();
        }
        drop(output);
        assert_eq!(reading.join().unwrap(), lines as u64 - dropped + 1);
    }

    #[test]
    fn the_end_waits_for_the_last_lines_and_not_for_a_reader_that_is_away() {
        let (output, mut reader) = piped();
        output.finish();
        output.say_soon("", 0, "\n");
        let began = Instant::now();
        // Its thread does not run: nobody writes the line.
        output.finish();
        assert!(began.elapsed() >= LAST_LINES);
        thread::scope(|scope| {
            scope.spawn(|| output.write_next());
            output.finish();
        });
        assert!(output.waiting.lock().lines.is_empty());
        assert_eq!(read(&mut reader).len(), Stamp::BYTES + 1);
    }

    #[test]
    fn lines_that_a_closed_pipe_does_not_take_are_counted() {
        let (output, reader) = piped();
        drop(reader);
        output.say_now(b"one\n");
        output.say_now(b"two\n");
        assert_eq!(output.waiting.lock().dropped, 1, "the second waits");
        assert_eq!(output.write_next(), 0, "nothing flows");
        assert_eq!(output.waiting.lock().dropped, 2);
    }
}
