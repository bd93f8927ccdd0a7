//! TCP sockets whose peer may vanish without a word: they end within a minute, and not with the kernel's hours.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A quiet peer is asked whether it is there after so long, and then so often.
const QUIET: Duration = Duration::from_secs(15);
const ASKED: u32 = 3;

/// What was sent waits for so long to be taken.
#[cfg(target_os = "linux")]
const UNTAKEN: Duration = Duration::from_secs(30);

/// What is said goes out at once, and a peer that is gone is noticed.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Events must not wait for more of them.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(QUIET)
        .with_interval(QUIET)
        .with_retries(ASKED);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNTAKEN))?;
    Ok(())
}

#[cfg(test)]
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
