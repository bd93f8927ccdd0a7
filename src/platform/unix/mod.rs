//! Linux, where raincheck is tested, and macOS.

pub mod child;
pub mod environment;
pub mod files;
pub mod group;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
pub mod pipe;
pub mod signals;
pub mod socket;

#[cfg(target_os = "linux")]
pub use linux::{ALLOCATOR, Allocator, LACKS, bounds, process, reaper, resources, service};
#[cfg(target_os = "macos")]
pub use macos::{ALLOCATOR, Allocator, LACKS, bounds, process, reaper, resources, service};
