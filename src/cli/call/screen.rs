//! The view of a running call for a person, on standard error: in a terminal one line that changes, elsewhere a line
//! for each change.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::base::printable::printable_lines;
use crate::cli::progress_bar::{CLEAR_LINE, bar, whole};
use crate::cli::table::cleaned;
use crate::platform::process::terminal_takes_colours;

/// The width of a terminal that does not report its own.
const WIDTH: usize = 80;

/// Standard error, and what it shows of the call.
#[derive(Debug)]
pub(super) struct Screen {
    is_terminal: bool,
    since: Instant,
    /// The progress of the call, in the server's words.
    state: String,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal() && terminal_takes_colours(),
            since: Instant::now(),
            state: "calling".to_owned(),
        }
    }

    /// Prints a line that stays.
    pub(super) fn say(&self, text: &str) {
        let clear = if self.is_terminal { CLEAR_LINE } else { "" };
        write(&format!("{clear}{}\n", printable_lines(text)));
    }

    /// Prints the beginning of a line that a person ends.
    pub(super) fn ask(&self, prompt: &str) {
        let clear = if self.is_terminal { CLEAR_LINE } else { "" };
        write(&format!("{clear}{}", printable_lines(prompt)));
    }

    /// Shows the `params` of a `notifications/progress`.
    pub(super) fn progress(&mut self, params: &RawValue) {
        let state = progress(&serde_json::from_str(params.get()).unwrap_or_default());
        // A server may repeat itself, and without a terminal each repetition would be a line.
        if state == self.state {
            return;
        }
        self.state = state;
        if self.is_terminal {
            self.tick();
        } else {
            self.say(&self.state);
        }
    }

    /// Draws the line anew, with the seconds that have passed.
    pub(super) fn tick(&self) {
        if !self.is_terminal {
            return;
        }
        let seconds = Instant::now()
            .saturating_duration_since(self.since)
            .as_secs();
        let line = format!("{seconds} s  {}", self.state);
        // A line that wraps cannot be cleared.
        let line: String = line.chars().take(width().saturating_sub(1)).collect();
        write(&format!("{CLEAR_LINE}{line}"));
    }

    /// Removes the line of the progress.
    pub(super) fn clear(&self) {
        if self.is_terminal {
            write(CLEAR_LINE);
        }
    }
}

/// The time between two drawings of the seconds.
pub(super) const TICK: Duration = Duration::from_secs(1);

fn progress(params: &Value) -> String {
    let number = |key: &str| params.get(key).and_then(Value::as_f64);
    let message = params.get("message").and_then(Value::as_str);
    let message = cleaned(message.unwrap_or_default());
    let text = match (number("progress"), number("total")) {
        (Some(done), Some(total)) if total > 0.0 => {
            // In thousandths, because a server may count to 1.0.
            let part = whole(done / total * 1000.0);
            format!("[{}] {done} of {total}  {message}", bar(part, 1000))
        }
        (Some(done), _) if message.is_empty() => format!("{done}"),
        _ => message,
    };
    text.trim_end().to_owned()
}

fn width() -> usize {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(WIDTH, |(columns, _)| usize::from(columns.0))
}

fn write(text: &str) {
    let mut out = io::stderr().lock();
    // A call does not fail because its progress cannot be shown.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_is_a_bar_where_the_end_is_known() {
        let half = json!({"progress": 0.5, "total": 1, "message": "half\nway"});
        let bar = format!("[{}{}]", "#".repeat(15), ".".repeat(15));
        assert_eq!(progress(&half), format!("{bar} 0.5 of 1  half\u{fffd}way"));
        assert_eq!(
            progress(&json!({"progress": 3, "message": "third"})),
            "third"
        );
        assert_eq!(progress(&json!({"progress": 3})), "3");
        assert_eq!(progress(&json!({"progress": 3, "total": 0})), "3");
    }
}
