//! The threads and the log that every command needs.

use super::failure::Failure;
use crate::config::{LogFormat, Telemetry};
use crate::telemetry::log as logging;

pub(super) fn log(settings: &Telemetry) -> Result<(), Failure> {
    logging::init(&logging::Settings {
        filter: settings.log.clone(),
        json: settings.format == LogFormat::Json,
    })
    .map_err(Failure::usage)
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::runtime(format!("no threads to run on: {e}")))
}
