//! macOS, in the place of what only Linux has.

/// The functions that raincheck does not have on macOS, for its user.
pub const LACKS: Option<&str> = Some(
    "macOS: if raincheck is killed with SIGKILL, its server ends only if it ends with its input, and other processes of the same \
     user may read the memory of raincheck",
);

/// System calls about this process and its sockets.
pub mod process {
    use std::io;
    use std::path::PathBuf;
    use std::time::Duration;

    use socket2::SockRef;

    /// The path of this program.
    pub fn own_program() -> PathBuf {
        std::env::current_exe().unwrap_or_else(|_| "raincheck".into())
    }

    /// A wrapped server notices the end of raincheck by the end of its standard input.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such a system call, and it can fail"
    )]
    pub(in super::super) fn tie_to(_parent: u32) -> io::Result<()> {
        Ok(())
    }

    /// The system decides what other processes of the same user may read.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such a system call, and it can fail"
    )]
    pub fn prepare() -> io::Result<()> {
        Ok(())
    }

    /// Returns `true`: terminals show colours.
    pub fn terminal_takes_colours() -> bool {
        true
    }

    /// The system does not say.
    pub(in super::super) fn ignores_hangup() -> bool {
        false
    }

    /// The keepalive of the socket alone notices a peer that is gone.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such an option, and it can fail"
    )]
    pub fn bound_unacknowledged(_socket: &SockRef<'_>, _time: Duration) -> io::Result<()> {
        Ok(())
    }

    /// The kernel takes as much as the buffer of the socket holds.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such an option, and it can fail"
    )]
    pub fn bound_unsent(_socket: &SockRef<'_>, _bytes: u32) -> io::Result<()> {
        Ok(())
    }
}

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

/// The use of the machine's resources, for which the system has no interface that needs no unsafe code.
pub mod resources {
    use std::io;

    use crate::platform::ResourceUse;

    /// `true` if [`read`] returns anything.
    pub const ARE_KNOWN: bool = false;

    pub fn read() -> io::Result<ResourceUse> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
