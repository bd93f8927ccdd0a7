//! WHAT OPERATORS SEE: the log, and the metrics. Every part may report here; nothing here decides anything.

pub mod calls;
pub mod counted;
pub mod events;
mod known_names;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod notices;
pub mod operation_ending;
pub mod operation_series;
pub mod operations;
pub mod polls;
pub mod reloads;
pub mod repeats;
pub mod resources;
pub mod seconds;
pub mod tasks;
pub mod tool;
pub mod traces;
pub mod waiting;
