//! Windows.

pub mod child;
pub mod environment;
pub mod files;
pub mod group;
pub mod pipe;
pub mod process;
pub mod signals;
pub mod socket;

/// The functions that raincheck does not have on Windows, for its user. docs/servers.md has them all.
pub const LACKS: Option<&str> = Some(
    "Windows: a server that does not end with its input is killed after 2 s, files are as private as their folder, POST \
     /reload of the admin listener takes the place of SIGHUP, and there are no Unix sockets",
);

/// The allocator of the program: the system's.
pub type Allocator = std::alloc::System;

/// The allocator of the program.
pub const ALLOCATOR: Allocator = std::alloc::System;

/// The process that reaps others. Windows has no such processes.
pub mod reaper {
    use std::io;
    use std::process::ExitCode;

    /// Returns `None`: the children of others never become children of this process.
    #[expect(clippy::unnecessary_wraps, reason = "on Linux they may")]
    pub fn run_in_child() -> io::Result<Option<ExitCode>> {
        Ok(None)
    }
}

/// The use of the machine's resources, which the system does not give to safe code.
pub mod resources {
    use std::io;

    use crate::platform::ResourceUse;

    /// `true` if [`read`] returns anything.
    pub const ARE_KNOWN: bool = false;

    pub fn read() -> io::Result<ResourceUse> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
