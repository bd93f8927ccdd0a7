//! The program: everything is in the library.

use std::process::ExitCode;

use raincheck::platform;

#[global_allocator]
static ALLOCATOR: platform::Allocator = platform::ALLOCATOR;

fn main() -> ExitCode {
    raincheck::cli::main()
}
