//! Where logs go: to stderr, as text or as JSON. The subscriber escapes values, so that a client cannot forge a
//! line.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::repeats::Repeats;

/// What to log and how.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Levels, in general and by module: `info`, `info,raincheck=debug`.
    pub filter: String,
    /// One JSON object a line instead of text.
    pub json: bool,
}

/// Starts logging. Call it once and first: earlier events are lost.
pub fn init(settings: &LogSettings) -> Result<(), String> {
    let filter: Targets = settings
        .filter
        .replace(' ', "")
        .parse()
        .map_err(|_| format!("{:?} is not a log filter", settings.filter))?;
    let output = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let output = if settings.json {
        output.json().flatten_event(true).boxed()
    } else {
        output.with_ansi(io::stderr().is_terminal()).boxed()
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(output.with_filter(Repeats))
        .try_init()
        .map_err(|_| "logging was set up twice".to_owned())
}
