//! The program: everything is in the library.

use std::process::ExitCode;

use raincheck::platform::{ALLOCATOR as ALLOCATOR_OF_SYSTEM, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator = ALLOCATOR_OF_SYSTEM;

fn main() -> ExitCode {
    raincheck::cli::main()
}
