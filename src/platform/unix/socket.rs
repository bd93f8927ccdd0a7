//! Sockets in the file system.

use std::io;
use std::path::Path;
use std::time::Duration;

pub use super::bounds::{bound_unacknowledged, bound_unsent};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, UnixStream};

/// `true` if a server behind a socket of the file system can be wrapped.
pub const ARE_FILES: bool = true;

/// Lets a listener have an address at which connections of another process are still ending.
pub fn reuse_address(socket: &TcpSocket) -> io::Result<()> {
    socket.set_reuseaddr(true)
}

/// Does nothing: sockets are closed to children from the start.
#[expect(
    clippy::unnecessary_wraps,
    reason = "Windows has such an option, and it can fail"
)]
pub fn keep_from_children(_socket: &SockRef<'_>) -> io::Result<()> {
    Ok(())
}

/// Connects to the socket of this path.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}

/// Probes a peer that was silent for this time, in this interval and so often before it counts as gone.
pub fn keepalive(quiet: Duration, interval: Duration, times: u32) -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(quiet)
        .with_interval(interval)
        .with_retries(times)
}
