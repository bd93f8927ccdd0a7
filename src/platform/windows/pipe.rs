//! The state of a pipe, of which Windows shows nothing to the side that writes.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::windows::io::AsHandle as _;

/// Any pipe.
pub trait Pipe {}
impl<T> Pipe for T {}

/// No number of bytes is sure to be taken without a wait.
pub const AT_ONCE: usize = 0;

/// The threads that a runtime may have for work that blocks: each pipe of a process takes one while the process lives.
pub const fn blocking_threads(_others: usize) -> usize {
    4096
}

/// Resolves at once: the system does not show if the bytes were read.
#[expect(clippy::unused_async, reason = "other systems wait for the reader")]
pub async fn is_empty(_pipe: &impl Pipe) {}

/// Returns `None`: the system does not show it.
pub fn left_unread(_pipe: &impl Pipe) -> Option<u64> {
    None
}

/// Never resolves: the next write fails.
pub async fn output_has_no_reader() {
    std::future::pending().await
}

/// Returns `false`: any write may take a wait.
pub fn has_room(_pipe: &File) -> bool {
    false
}

/// Returns an error: no pipe here refuses a write for want of room.
pub fn wait_for_room(_pipe: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Writes to standard error. A console takes text in another coding than files.
pub fn write_error(to: &File, bytes: &[u8]) -> io::Result<usize> {
    let mut console = io::stderr();
    if console.is_terminal() {
        console.write(bytes)
    } else {
        (&*to).write(bytes)
    }
}

/// Returns `false`: what is no file may look like one.
pub fn never_waits(_found: &Metadata) -> bool {
    false
}

/// Standard error as it is now.
pub fn standard_error() -> io::Result<File> {
    Ok(io::stderr().as_handle().try_clone_to_owned()?.into())
}
