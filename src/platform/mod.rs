//! The differences between operating systems: one folder for each family, with the same functions.
//!
//! Nothing else in raincheck depends on the system that it is built for, but one option of the Redis library. `unix` has Linux and
//! macOS, whose few differences are in `unix/linux` and `unix/macos`.

#[cfg(not(target_os = "linux"))]
mod lacking;
mod resource_use;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

pub use resource_use::ResourceUse;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;
