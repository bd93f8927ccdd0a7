//! Sockets in the file system, which Windows has and tokio does not open there.

use std::io;
use std::path::Path;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// `true` if a server behind a socket of the file system can be wrapped.
pub const ARE_FILES: bool = false;

/// Returns an error.
#[expect(clippy::unused_async, reason = "other systems connect")]
pub async fn connect(_path: &Path) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The keepalive of the socket alone notices a peer that is gone.
#[expect(
    clippy::unnecessary_wraps,
    reason = "Linux has such an option, and it can fail"
)]
pub fn bound_unacknowledged(_socket: &SockRef<'_>, _time: Duration) -> io::Result<()> {
    Ok(())
}

/// The system takes as much as the buffer of the socket holds.
#[expect(
    clippy::unnecessary_wraps,
    reason = "Linux has such an option, and it can fail"
)]
pub fn bound_unsent(_socket: &SockRef<'_>, _bytes: u32) -> io::Result<()> {
    Ok(())
}
