//! The reason why a command fails, and the output of it for the user.

use std::io::{self, Write as _};

use crate::config::ConfigError;
use crate::telemetry::log as logging;

/// Why a command failed: one line for stderr, and the exit code.
#[derive(Debug)]
pub(super) struct CommandFailure {
    pub(super) code: u8,
    pub(super) text: String,
}

impl CommandFailure {
    /// A mistake on the command line or in the configuration.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self {
            code: 2,
            text: text.into(),
        }
    }

    /// The command was right and did not work.
    pub(super) fn runtime(text: impl Into<String>) -> Self {
        Self {
            code: 1,
            text: text.into(),
        }
    }
}

impl From<ConfigError> for CommandFailure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

/// Prints the reason why a command failed. The one place that writes to stderr beside the log. Where there is a log,
/// the line goes the log's way: a write to stderr may wait for its reader for ever.
pub(super) fn complain(text: &str) {
    if !logging::say_last(text) {
        let line = logging::plain(text);
        // There is no other place to report that stderr does not take the line.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}
