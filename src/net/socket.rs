//! TCP sockets whose peer may vanish without closing them: such a socket ends within a minute, instead of
//! after the kernel's default of hours.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::platform::socket::{bound_unacknowledged, keep_from_children, keepalive};

/// The keepalive time and interval: a silent peer is probed after this time, and then in this interval.
const QUIET: Duration = Duration::from_secs(15);
const ASKED: u32 = 3;

/// The time that sent data may stay unacknowledged.
const UNTAKEN: Duration = Duration::from_secs(30);

/// Sets the options of a socket: writes go out at once, and a vanished peer is noticed.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Without this, an event would wait in the kernel for further data.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    keep_from_children(&socket)?;
    socket.set_tcp_keepalive(&keepalive(QUIET, QUIET, ASKED))?;
    bound_unacknowledged(&socket, UNTAKEN)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_peer_that_is_gone_is_noticed_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, _) = tokio::join!(TcpStream::connect(address), listener.accept());
        let stream = stream.unwrap();
        prepare(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let noticed = socket.tcp_keepalive_time().unwrap()
            + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert!(noticed <= Duration::from_mins(1), "{noticed:?}");
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNTAKEN));
    }
}
