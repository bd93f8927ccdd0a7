//! Windows.

pub mod child;
pub mod environment;
pub mod files;
pub mod group;
pub mod pipe;
pub mod process;
pub mod signals;
pub mod socket;

pub use super::lacking::{ALLOCATOR, Allocator, bounds, reaper, resources, service};

/// The functions that raincheck does not have on Windows, for its user. docs/servers.md and docs/operations.md have them all.
pub const LACKS: Option<&str> = Some(
    "Windows: a server that does not end with its input is killed after 2 s, files are as private as their folder, POST \
     /reload of the admin listener takes the place of SIGHUP, and there are no Unix sockets",
);
