//! The functions that only Linux has.

pub mod process;
pub mod reaper;
pub mod resources;
