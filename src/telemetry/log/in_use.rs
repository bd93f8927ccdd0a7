//! The log of this process.

use std::sync::OnceLock;

use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::reload::Handle;

use super::form::LineForm;
use super::output::Output;
use crate::base::lock::Mutex;

/// The log, once logging has begun.
pub(super) static LOG: OnceLock<Log> = OnceLock::new();

#[derive(Debug)]
pub(super) struct Log {
    pub(super) form: LineForm,
    pub(super) output: Output,
    pub(super) handle: Handle<Targets, Registry>,
    /// The filter as it was written.
    pub(super) text: Mutex<String>,
}
