//! The program: everything is in the library.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// What is freed after a burst goes back to the system: the C library's allocator keeps it in pieces.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    raincheck::cli::main()
}
