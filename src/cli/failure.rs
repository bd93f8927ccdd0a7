//! Why a command fails, and how it tells the user.

use std::io::{self, Write as _};

use crate::config::ConfigError;

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

/// The one place that writes to stderr beside the log.
pub(super) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "raincheck: {text}");
}
