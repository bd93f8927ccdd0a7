//! Why a command fails, and how the user is told.

use std::io::{self, Write as _};

use crate::config::ConfigError;

/// Why the process ends other than well: one line for stderr, and the exit code.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u8,
    pub(super) text: String,
}

impl Failure {
    /// The user can fix it by saying something else.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self {
            code: 2,
            text: text.into(),
        }
    }

    /// It was said well and did not work.
    pub(super) fn runtime(text: impl Into<String>) -> Self {
        Self {
            code: 1,
            text: text.into(),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

/// The one place that writes to stderr beside the log.
pub(super) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "raincheck: {text}");
}
