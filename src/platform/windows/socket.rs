//! Sockets in the file system, which Windows has and tokio does not open there.

use std::io;
use std::path::Path;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

pub use super::bounds::{bound_unacknowledged, bound_unsent};

/// `true` if a server behind a socket of the file system can be wrapped.
pub const ARE_FILES: bool = false;

/// Does nothing: an address is free at once here, and the option would let two processes listen at it.
pub fn reuse_address(_socket: &TcpSocket) -> io::Result<()> {
    Ok(())
}

/// Closes a socket to children: all that is inheritable reaches every one.
pub fn keep_from_children(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_no_inherit(true)
}

/// Returns an error.
#[expect(clippy::unused_async, reason = "other systems connect")]
pub async fn connect(_path: &Path) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Probes a peer that was silent for this time. It counts as gone as if it were probed in this interval and so often, but Windows
/// always probes ten times: its servers of 2016 have no other number.
pub fn keepalive(quiet: Duration, interval: Duration, times: u32) -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(quiet)
        .with_interval(interval * times / 10)
}
