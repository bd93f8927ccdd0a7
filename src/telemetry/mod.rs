//! WHAT OPERATORS SEE: the log, and the metrics. Every part may report here; nothing here decides anything.

pub mod calls;
pub mod log;
pub mod metrics;
pub mod repeats;
pub mod tasks;
mod tool;
