//! The state of a pipe, of which Windows says nothing to the side that writes.

use std::fs::File;
use std::io;
use std::os::windows::io::AsHandle as _;

/// Any pipe.
pub trait Pipe {}
impl<T> Pipe for T {}

/// No number of bytes is sure to be taken without a wait.
pub const AT_ONCE: usize = 0;

/// Never resolves: a reader that has read everything cannot be told from one that has not.
pub async fn is_empty(_pipe: &impl Pipe) {
    std::future::pending().await
}

/// Returns `None`: the system does not say.
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

/// Standard error as it is now.
pub fn standard_error() -> io::Result<File> {
    Ok(io::stderr().as_handle().try_clone_to_owned()?.into())
}
