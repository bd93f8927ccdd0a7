//! macOS, in the place of what only Linux has.

/// The functions that raincheck does not have on macOS, for its user.
pub const LACKS: Option<&str> = Some(
    "macOS: if raincheck is killed with SIGKILL, its server ends only if it ends with its input, and other processes of the same \
     user may read the memory of raincheck",
);

/// System calls about this process.
pub mod process {
    use std::io;
    use std::path::PathBuf;

    /// The path of this program.
    pub fn own_program() -> PathBuf {
        std::env::current_exe().unwrap_or_else(|_| "raincheck".into())
    }

    /// Does nothing: a wrapped server notices the end of raincheck by the end of its standard input.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such a system call, and it can fail"
    )]
    pub(in super::super) fn tie_to(_parent: u32) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing: the system decides what other processes of the same user may read.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Linux has such a system call, and it can fail"
    )]
    pub fn keep_private() -> io::Result<()> {
        Ok(())
    }

    /// Does nothing: each child ties itself to the life of this process.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "Windows has a job for it, which can fail"
    )]
    pub fn tie_children() -> io::Result<()> {
        Ok(())
    }

    /// Returns `true`: terminals show colours.
    pub fn terminal_takes_colours() -> bool {
        true
    }

    /// Returns `false`: the system has no such list.
    pub(in super::super) fn ignores_hangup() -> bool {
        false
    }
}

pub use super::super::lacking::{ALLOCATOR, Allocator, bounds, reaper, resources, service};
