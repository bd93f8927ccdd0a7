//! Sockets in the file system.

use std::io;
use std::path::Path;
use std::time::Duration;

pub use super::bounds::{bound_unacknowledged, bound_unsent};
use socket2::TcpKeepalive;
use tokio::net::UnixStream;

/// `true` if a server behind a socket of the file system can be wrapped.
pub const ARE_FILES: bool = true;

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
