//! The functions that only Linux has.

/// The functions that raincheck does not have here, for its user: none.
pub const LACKS: Option<&str> = None;

pub mod bounds;
pub mod process;
pub mod reaper;
pub mod resources;
pub mod service;

/// The allocator of the program. Jemalloc returns memory to the system after a burst; the C library's allocator would keep it in
/// fragments.
pub type Allocator = tikv_jemallocator::Jemalloc;

/// The allocator of the program.
pub const ALLOCATOR: Allocator = tikv_jemallocator::Jemalloc;
