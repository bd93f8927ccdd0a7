//! Bounds of a connection.

use std::io;
use std::time::Duration;

use socket2::SockRef;

/// Ends a connection whose peer does not acknowledge data for this long.
pub fn bound_unacknowledged(socket: &SockRef<'_>, time: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(time))
}

/// Bounds the bytes that the kernel takes of what is written and not yet on its way.
pub fn bound_unsent(socket: &SockRef<'_>, bytes: u32) -> io::Result<()> {
    socket.set_tcp_notsent_lowat(bytes)
}
