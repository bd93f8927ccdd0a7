//! The program: everything is in the library.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// Jemalloc returns memory to the system after a burst; the C library's allocator would keep it in fragments.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    raincheck::cli::main()
}
