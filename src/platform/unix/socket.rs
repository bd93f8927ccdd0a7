//! Sockets in the file system.

use std::io;
use std::path::Path;

pub use super::bounds::{bound_unacknowledged, bound_unsent};
use tokio::net::UnixStream;

/// `true` if a server behind a socket of the file system can be wrapped.
pub const ARE_FILES: bool = true;

/// Connects to the socket of this path.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}
