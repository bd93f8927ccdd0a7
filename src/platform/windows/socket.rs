//! Sockets in the file system, which Windows has and tokio does not open there.

use std::io;
use std::path::Path;

use tokio::net::TcpStream;

pub use super::super::lacking::bounds::{bound_unacknowledged, bound_unsent};

/// `true` if a server behind a socket of the file system can be wrapped.
pub const ARE_FILES: bool = false;

/// Returns an error.
#[expect(clippy::unused_async, reason = "other systems connect")]
pub async fn connect(_path: &Path) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}
