//! Logs what a child writes to its standard error. It is always read, so that the child never waits, and logged
//! at a bounded rate.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::upstream::stdio::lines::{LineSplitter, TooLong};

/// The length up to which a line is logged.
const LINE_BYTES_MAX: usize = 1024;

/// The number of lines that are logged in a second. Further lines are counted.
const LINES_MAX: u32 = 50;

const SECOND: Duration = Duration::from_secs(1);

/// Reads to the end, and returns the line that seems to contain the reason why the child ended.
pub(super) async fn drain(mut stderr: impl AsyncRead + Unpin, pid: u32) -> String {
    let mut words = LastWords::default();
    let mut lines = LineSplitter::new(LINE_BYTES_MAX, TooLong::Clip);
    let mut rate = Rate::new(Instant::now());
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let mut bytes = buffer.get(..count).unwrap_or_default();
        // Clipped lines are never refused.
        while let Ok(Some(line)) = lines.next(&mut bytes) {
            words.hear(line);
            say(&mut rate, pid, line);
        }
    }
    // A process that crashes may leave the reason in a line without an end.
    let rest = lines.rest();
    words.hear(rest);
    say(&mut rate, pid, rest);
    rate.confess(pid);
    words.0
}

/// The last line that speaks of an error, because some runtimes write more after it; without such a line, the
/// last line.
#[derive(Default)]
struct LastWords(String);

impl LastWords {
    fn hear(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line.trim_ascii());
        let is_of_error = |text: &str| text.to_ascii_lowercase().contains("error");
        if !line.is_empty() && (is_of_error(&line) || !is_of_error(&self.0)) {
            self.0 = line.into_owned();
        }
    }
}

fn say(rate: &mut Rate, pid: u32, line: &[u8]) {
    if line.is_empty() {
        return;
    }
    if rate.allows(Instant::now(), pid) {
        // Debug escapes control characters: a server cannot write into the operator's terminal.
        info!(pid, line = ?String::from_utf8_lossy(line), "the server's standard error");
    }
}

/// Lets a number of lines through in each second, and counts the others.
struct Rate {
    since: Instant,
    said: u32,
    left_out: u64,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            said: 0,
            left_out: 0,
        }
    }

    fn allows(&mut self, now: Instant, pid: u32) -> bool {
        if now.saturating_duration_since(self.since) >= SECOND {
            self.confess(pid);
            *self = Self::new(now);
        }
        if self.said >= LINES_MAX {
            self.left_out = self.left_out.saturating_add(1);
            return false;
        }
        self.said = self.said.saturating_add(1);
        true
    }

    fn confess(&self, pid: u32) {
        if self.left_out > 0 {
            warn!(
                pid,
                lines = self.left_out,
                "the server wrote more to its standard error than is logged"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_of_an_error_is_why_it_ended() {
        let why = |lines: &[&str]| {
            let mut words = LastWords::default();
            for line in lines {
                words.hear(line.as_bytes());
            }
            words.0
        };
        assert_eq!(why(&["", "starting", "no such user", " "]), "no such user");
        let of_node = [
            "  throw it",
            "Error: no TOKEN",
            "    at x.js:1",
            "",
            "Node.js v22",
        ];
        assert_eq!(why(&of_node), "Error: no TOKEN");
        assert_eq!(why(&[]), "");
    }

    #[test]
    fn so_many_lines_a_second() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let allowed = (0..1000).filter(|_| rate.allows(start, 1)).count();
        assert_eq!((allowed, rate.left_out), (50, 950));
        assert!(rate.allows(start + SECOND, 1));
        assert_eq!(rate.left_out, 0);
    }
}
