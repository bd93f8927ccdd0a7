//! The threads and the log that every command needs.

use super::failure::CommandFailure;
use crate::config::load::environment;
use crate::config::{LogFormat, TelemetrySettings};
use crate::telemetry::log as logging;

pub(super) fn log(settings: &TelemetrySettings) -> Result<(), CommandFailure> {
    logging::init(&logging::LogSettings {
        filter: settings.log.clone(),
        json: settings.format == LogFormat::Json,
        colours: colours(),
    })
    .map_err(CommandFailure::usage)
}

/// Whether the user lets programs write colours (<https://no-color.org>).
pub(super) fn colours() -> bool {
    let is_no = |(name, value): &(String, String)| name == "NO_COLOR" && !value.is_empty();
    !environment().iter().any(is_no)
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CommandFailure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandFailure::runtime(format!("no threads to run on: {e}")))
}
