//! The log's way to standard error. Nothing waits for the reader of the log: lines wait in a bounded buffer, and one thread
//! writes them. Lines beyond the bound are dropped and counted.
//!
//! A rare line is written at once, by the thread that logs it, if that takes no wait: so it is out before an answer
//! that its client may act on, and before anything that may end the process. Lines that come with every request
//! gather at their threads, so that many of them are one write. Lines of the ends of tasks are written at once if
//! they are rare, and gather if they are not.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use self::gathered::{ALL_GATHERED_MAX, Gathered, GatheredLines};
use super::super::repeats::LINES_DROPPED;
use crate::base::lock::Mutex;
use crate::platform::files::is_pipe;
use crate::platform::pipe::{AT_ONCE, has_room, never_waits, wait_for_room, write_error};
use crate::telemetry::metrics::METRICS;

pub(super) mod gathered;
mod soon;

/// The most bytes that wait, beside those that threads gather: 1 MiB together.
const WAITING_MAX: usize = (1 << 20) - ALL_GATHERED_MAX;

/// So many bytes are worth a write of their own.
const ENOUGH: usize = 64 << 10;

/// The time that lines gather.
const GATHERING: Duration = Duration::from_millis(100);

/// The longest wait for the last lines of the process. A reader that does not read must not keep the process alive.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The reason for which a write to standard error may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// A file: for no reader.
    Never,
    /// A pipe or a socket waits for its reader, unless a poll shows that it has room.
    IfFull,
    /// A terminal waits for its reader also after a poll that shows that it has room.
    Perhaps,
}

/// Standard error, and what waits for it.
#[derive(Debug)]
pub(super) struct Output {
    to: File,
    waits: Waits,
    /// Locked before `waiting`.
    gathered: Gathered,
    waiting: Mutex<WaitingLines>,
    /// There is something to write.
    comes: Condvar,
    /// Something was written.
    gone: Condvar,
    /// The thread that holds the lock writes. So the lines of a thread keep their order.
    writing: Mutex<Writing>,
}

#[derive(Debug, Default)]
struct WaitingLines {
    lines: Vec<u8>,
    /// `true` if a thread may have gathered lines.
    are_gathered: bool,
    /// `true` if the lines must not wait for others.
    is_urgent: bool,
    /// Lines that were dropped, and that no line of the log has reported yet.
    dropped: u64,
    /// Dropped lines that a waiting line reports.
    told: u64,
    /// Lines that may be lost without harm: they report other lines, or are the last.
    extra: u64,
    /// When the last line came of a kind that gathers if it comes often.
    last_frequent: Option<Instant>,
    /// All bytes that ever waited.
    queued: u64,
    /// Those of them that were written or lost.
    done: u64,
}

#[derive(Debug, Default)]
struct Writing {
    /// Takes what waits.
    lines: Vec<u8>,
    /// `true` if the last line that was written lacks its end.
    is_torn: bool,
}

impl WaitingLines {
    /// Returns `true` if the thread that writes has nothing to do.
    fn is_nothing(&self) -> bool {
        self.lines.is_empty() && !self.are_gathered
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.lines.is_empty() || self.lines.len() + bytes <= WAITING_MAX
    }

    fn push(&mut self, lines: &[u8]) {
        self.lines.extend_from_slice(lines);
        self.queued += lines.len() as u64;
    }

    /// Counts a line for which there is no room.
    fn lose(&mut self) {
        self.dropped += 1;
        METRICS.process.log_lines_dropped.inc();
    }
}

impl Output {
    pub(super) fn new(to: File) -> Self {
        Self {
            waits: match to.metadata() {
                Ok(kind) if never_waits(&kind) => Waits::Never,
                Ok(kind) if is_pipe(&kind) => Waits::IfFull,
                _ => Waits::Perhaps,
            },
            to,
            gathered: Gathered::default(),
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
                self.write_next(|lines| {
                    warn!(
                        name: LINES_DROPPED,
                        lines,
                        "lines of the log were dropped: standard error did not take them in time"
                    );
                });
            }
        })?;
        Ok(())
    }

    /// Writes the line and all that waits, or lets the thread do it if that takes a wait.
    pub(super) fn say_now(&self, line: &[u8]) {
        // Lines that gathered before this one were logged first, so they go out first.
        self.collect();
        let mut waiting = self.waiting.lock();
        if !waiting.has_room(line.len()) {
            return waiting.lose();
        }
        waiting.push(line);
        drop(waiting);
        self.write_now();
    }

    /// Writes all that waits, or lets the thread do it if that takes a wait.
    fn write_now(&self) {
        // Set before the attempt: lines that it leaves to the thread must not gather.
        self.waiting.lock().is_urgent = true;
        if !self.write_without_wait() {
            self.comes.notify_one();
        }
    }

    /// Leaves the line to the thread, also where there is no room. For the few lines that must not be dropped.
    pub(super) fn say_in_any_case(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        waiting.push(line);
        waiting.extra += 1;
        waiting.is_urgent = true;
        drop(waiting);
        self.comes.notify_one();
    }

    /// Writes a line of a kind that may come often: at once after a pause of such lines, with others soon if there was none.
    pub(super) fn say_now_if_rare(&self, write: impl FnOnce(&mut GatheredLines)) {
        let now = Instant::now();
        let last = self.waiting.lock().last_frequent.replace(now);
        self.say_soon(write);
        if last.is_none_or(|last| now.saturating_duration_since(last) >= GATHERING) {
            self.collect();
            self.write_now();
        }
    }

    /// Waits until the lines that wait now are written or lost, but not for long. Returns whether they are.
    pub(super) fn finish(&self) -> bool {
        let until = Instant::now() + LAST_LINES;
        loop {
            // A part may find no room. The next round takes it, once the thread has made room.
            let is_all = self.collect();
            if !self.finish_collected(until) {
                return false;
            }
            if is_all {
                return true;
            }
        }
    }

    fn finish_collected(&self, until: Instant) -> bool {
        let mut waiting = self.waiting.lock();
        // Lines that come after this do not count, because they could come without end.
        let last = waiting.queued;
        waiting.is_urgent = true;
        self.comes.notify_one();
        while waiting.done < last {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            waiting = wait(&self.gone, waiting, left);
        }
        true
    }

    /// Writes all waiting lines. Returns `false` if that may take a wait, or another thread writes.
    fn write_without_wait(&self) -> bool {
        // The thread that holds this lock may be held up by the reader of the log, so the lock is not awaited.
        let Some(mut writing) = self.writing.try_lock() else {
            return false;
        };
        let waiting = self.waiting.lock();
        let fits = match self.waits {
            Waits::Never => true,
            Waits::IfFull => waiting.lines.len() <= AT_ONCE && has_room(&self.to),
            Waits::Perhaps => false,
        };
        // The thread tells of what was dropped, and mends a line that was torn.
        if !fits || waiting.dropped > 0 || writing.is_torn {
            return false;
        }
        self.write(waiting, &mut writing, false)
    }

    /// Waits for lines, and writes them. Before that, `tell` receives the number of lines that were dropped after
    /// them.
    fn write_next(&self, tell: impl FnOnce(u64)) {
        // The lock of writing is taken only when there are lines, so that other threads can write at once meanwhile.
        self.gather();
        let mut writing = self.writing.lock();
        self.collect();
        // The lock ends with this statement, because `tell` logs a line and takes it.
        let dropped = self.waiting.lock().dropped;
        if dropped > 0 {
            tell(dropped);
        }
        let mut waiting = self.waiting.lock();
        // More lines may have been dropped meanwhile, so the count is lowered and not cleared.
        waiting.dropped -= dropped;
        waiting.told += dropped;
        if !waiting.lines.is_empty() {
            self.write(waiting, &mut writing, true);
        }
    }

    /// Waits until there is something to write, and until that is enough, urgent or old.
    fn gather(&self) {
        let mut waiting = self.waiting.lock();
        // A condition variable may wake up without a cause.
        while waiting.is_nothing() {
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

    /// Writes all that waits. Without `may_wait`, what would take a wait goes on waiting. Returns whether all is gone.
    fn write(
        &self,
        mut waiting: MutexGuard<'_, WaitingLines>,
        writing: &mut Writing,
        may_wait: bool,
    ) -> bool {
        let Writing { lines, is_torn } = writing;
        // Swapped out, so that other threads can add lines during the write, which may take long.
        mem::swap(&mut waiting.lines, lines);
        waiting.is_urgent = false;
        let told = mem::take(&mut waiting.told);
        let extra = mem::take(&mut waiting.extra);
        drop(waiting);
        // A line end comes first, so that the next line does not continue the torn one.
        let (written, error) = if mem::take(is_torn) {
            match self.write_bytes(b"\n", may_wait) {
                (_, Ok(())) => self.write_bytes(lines, may_wait),
                (_, error) => {
                    *is_torn = true;
                    (0, error)
                }
            }
        } else {
            self.write_bytes(lines, may_wait)
        };
        let mut waiting = self.waiting.lock();
        waiting.done += written as u64;
        let (gone, rest) = lines.split_at_checked(written).unwrap_or_default();
        let is_all = match error {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Lines that came meanwhile stay behind these.
                waiting.lines.splice(..0, rest.iter().copied());
                waiting.is_urgent = true;
                waiting.told += told;
                waiting.extra += extra;
                false
            }
            Err(_) => {
                *is_torn |= gone.last().is_some_and(|byte| *byte != b'\n');
                // The text ends with a line end, so the split gives one part more than there are lines.
                let ends = rest.split(|byte| *byte == b'\n').count();
                let lost = ends.saturating_sub(1) as u64;
                let lost = lost.saturating_sub(extra);
                METRICS.process.log_lines_dropped.inc_by(lost);
                waiting.dropped += lost + told;
                // Lost lines count as done, or `finish` would take its whole time for them.
                waiting.done += rest.len() as u64;
                true
            }
        };
        drop(waiting);
        self.gone.notify_all();
        lines.clear();
        // The memory of one large burst is given back.
        lines.shrink_to(ENOUGH);
        is_all
    }

    /// Returns how many bytes were written before the end or an error. `WouldBlock`: the rest would take a wait.
    fn write_bytes(&self, bytes: &[u8], may_wait: bool) -> (usize, io::Result<()>) {
        let mut rest = bytes;
        let ended = loop {
            if rest.is_empty() {
                break Ok(());
            }
            match write_error(&self.to, rest) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    // A pipe that took only a part is full, and another write would block.
                    let is_safe = may_wait || self.waits == Waits::Never;
                    if !is_safe && !rest.is_empty() {
                        break Err(ErrorKind::WouldBlock.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process may have asked for this, for all that share the pipe.
                Err(error) if error.kind() == ErrorKind::WouldBlock && may_wait => {
                    if let Err(error) = wait_for_room(&self.to) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        (bytes.len() - rest.len(), ended)
    }
}

fn wait<'w>(
    event: &Condvar,
    waiting: MutexGuard<'w, WaitingLines>,
    left: Duration,
) -> MutexGuard<'w, WaitingLines> {
    let waited = event.wait_timeout(waiting, left);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests;
