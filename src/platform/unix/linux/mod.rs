//! The functions that only Linux has.

/// The functions that raincheck does not have here, for its user: none.
pub const LACKS: Option<&str> = None;

pub mod bounds;
pub mod process;
pub mod reaper;
pub mod resources;
