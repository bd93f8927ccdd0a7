//! The threads and the log that every command needs.

use super::failure::CommandFailure;
use crate::base::io_reason::io_reason;
use crate::config::load::environment;
use crate::config::{Config, ConfigError, LogFormat, TelemetrySettings};
use crate::platform::pipe::blocking_threads;
use crate::platform::process::terminal_takes_colours;
use crate::telemetry::log as logging;

pub(super) fn log(settings: &TelemetrySettings) -> Result<(), CommandFailure> {
    begin(&settings.log, settings.format)
}

/// Starts the log of a service from its settings. Settings that can be read and are refused start it, too: what collects
/// the log may take only lines of the form that they ask for.
pub(super) fn logged(loaded: Result<Config, ConfigError>) -> Result<Config, CommandFailure> {
    match &loaded {
        Ok(config) => log(&config.telemetry)?,
        Err(error) => {
            if let Some(format) = error.log_format() {
                begin("info", format)?;
            }
        }
    }
    Ok(loaded?)
}

fn begin(filter: &str, format: LogFormat) -> Result<(), CommandFailure> {
    logging::init(&logging::LogSettings {
        filter: filter.to_owned(),
        json: format == LogFormat::Json,
        colours: colours(),
    })
    .map_err(CommandFailure::usage)
}

/// Returns `true` if the user lets programs write colours (<https://no-color.org>).
pub(super) fn colours() -> bool {
    let is_no = |(name, value): &(String, String)| name == "NO_COLOR" && !value.is_empty();
    !environment().iter().any(is_no) && terminal_takes_colours()
}

/// The most threads for work that blocks, beside pipes of processes.
const BLOCKING_MAX: usize = 512;

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CommandFailure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(blocking_threads(BLOCKING_MAX))
        .build()
        .map_err(|e| CommandFailure::runtime(format!("no threads to run on: {}", io_reason(&e))))
}
