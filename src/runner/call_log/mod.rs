//! THE LOG OF A CALL: the events of a call that its client may come back to, in the store. The log belongs to a
//! record like that of a task: the owner of the record writes the log.

mod budget;
pub mod entry;
pub mod log;
pub mod other_events;
pub mod pace;
mod point_seal;
pub mod recent;
mod record;
pub mod standing;
pub mod takeover;
pub mod writer;
