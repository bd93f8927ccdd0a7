//! Where logs go: stderr, as text or as JSON. Values are escaped by the subscriber, so that what a
//! client sent cannot forge a line.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// What the logs are to be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// An env-filter: `info`, `info,raincheck=debug`.
    pub filter: String,
    /// One JSON object a line instead of text.
    pub json: bool,
}

/// Call once, first: what is logged before is lost.
pub fn init(settings: &Settings) -> Result<(), String> {
    let filter = EnvFilter::try_new(&settings.filter)
        .map_err(|_| format!("{:?} is not a log filter", settings.filter))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let done = if settings.json {
        builder.json().flatten_event(true).finish().try_init()
    } else {
        let colours = io::stderr().is_terminal();
        builder.with_ansi(colours).finish().try_init()
    };
    done.map_err(|_| "logging was set up twice".to_owned())
}
