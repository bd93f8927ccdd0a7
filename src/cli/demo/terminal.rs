//! The one place where the demo writes and reads: plain lines, and in a terminal also a progress
//! bar and a question.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::cli::progress_bar::{CLEAR_LINE, bar};
use crate::platform::process::terminal_takes_colours;

/// The time that the demo waits for an answer of the user, so that it does not hang without one.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Stdout, and whether it is a terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    is_watched: bool,
    last_progress: String,
}

impl Terminal {
    pub(super) fn new() -> Self {
        Self {
            is_watched: io::stdout().is_terminal() && terminal_takes_colours(),
            last_progress: String::new(),
        }
    }

    /// Prints the title of a new part of the demo.
    pub(super) fn title(&self, text: &str) {
        if self.is_watched {
            write(&format!("\n\u{1b}[1m{text}\u{1b}[0m\n"));
        } else {
            write(&format!("\n{text}\n"));
        }
    }

    /// Prints a line.
    pub(super) fn say(&self, text: &str) {
        // Removes a half-drawn progress bar.
        let clear = if self.is_watched { CLEAR_LINE } else { "" };
        write(&format!("{clear}  {text}\n"));
    }

    /// Shows progress: in a terminal it replaces the bar, and otherwise it prints a line at each change.
    pub(super) fn progress(&mut self, done: u64, total: u64, text: &str) {
        let bar = bar(done, total);
        let line = format!("{bar} {text}");
        if self.is_watched {
            write(&format!("{CLEAR_LINE}  {line}"));
        } else if line != self.last_progress {
            self.say(&line);
        }
        self.last_progress = line;
    }

    pub(super) fn progress_done(&mut self) {
        if self.is_watched && !self.last_progress.is_empty() {
            write("\n");
        }
        self.last_progress.clear();
    }

    /// Asks the user. Returns `fallback` without a terminal, or without an answer within ten seconds.
    pub(super) async fn ask(&self, question: &str, fallback: &str) -> String {
        if !self.is_watched || !io::stdin().is_terminal() {
            self.say(&format!(
                "{question} {fallback} (nobody to ask, so this is the answer)"
            ));
            return fallback.to_owned();
        }
        let seconds = ANSWER_PATIENCE.as_secs();
        write(&format!("  {question} [{fallback}, in {seconds} s] "));
        let (sender, answer) = oneshot::channel();
        // The read has a thread of its own, because a read from a terminal cannot be cancelled: it may
        // outlive the demo, and the runtime would wait for it.
        std::thread::spawn(move || {
            let mut line = String::new();
            if io::stdin().lock().read_line(&mut line).is_ok() {
                let _ = sender.send(line.trim().to_owned());
            }
        });
        match tokio::time::timeout(ANSWER_PATIENCE, answer).await {
            Ok(Ok(line)) if !line.is_empty() => line,
            Ok(_) => fallback.to_owned(),
            Err(_) => {
                write("\n");
                fallback.to_owned()
            }
        }
    }
}

/// A reader that went away (`| head`) must not end the demo with a panic.
fn write(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
