//! The modules that only Linux has, without function.

/// The allocator of the program: the system's.
pub type Allocator = std::alloc::System;

/// The allocator of the program.
pub const ALLOCATOR: Allocator = std::alloc::System;

/// The process that reaps others. raincheck is process 1 in containers of Linux only.
pub mod reaper {
    use std::io;
    use std::process::ExitCode;

    /// Returns `None`: orphans do not become children of this process.
    #[expect(clippy::unnecessary_wraps, reason = "on Linux they may")]
    pub fn run_in_child() -> io::Result<Option<ExitCode>> {
        Ok(None)
    }
}

/// The use of the machine's resources, which the system does not give to safe code.
pub mod resources {
    use std::io;

    use crate::platform::resource_use::ResourceUse;

    /// `true` if [`read`] returns anything.
    pub const ARE_KNOWN: bool = false;

    pub fn read() -> io::Result<ResourceUse> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The manager of the service that this process is.
pub mod service {
    /// Does nothing: only systemd waits for the state.
    pub fn report(_state: &str) {}
}

/// Bounds of a connection.
pub mod bounds {
    use std::io;
    use std::time::Duration;

    use socket2::SockRef;

    /// Does nothing: the keepalive of the socket alone notices a peer that is gone.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such an option, and it can fail"
    )]
    pub fn bound_unacknowledged(_socket: &SockRef<'_>, _time: Duration) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing: the system takes as much as the buffer of the socket holds.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such an option, and it can fail"
    )]
    pub fn bound_unsent(_socket: &SockRef<'_>, _bytes: u32) -> io::Result<()> {
        Ok(())
    }
}
