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
pub use linux::{LACKS, bounds, process, reaper, resources};
#[cfg(target_os = "macos")]
pub use macos::{LACKS, bounds, process, reaper, resources};

/// The allocator of the program. Jemalloc returns memory to the system after a burst; the C library's allocator would keep it in
/// fragments.
pub type Allocator = tikv_jemallocator::Jemalloc;

/// The allocator of the program.
pub const ALLOCATOR: Allocator = tikv_jemallocator::Jemalloc;
