//! The life of one HTTP/2 connection: it is read and written until it ends, closed when it was idle for too long, and
//! gets no further requests when the server has fallen silent.

use std::future::pending;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use h2::client::Connection;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::upstream::http::http1::IDLE;
use crate::upstream::http::http2::connections::{ConnectionUse, Connections};

/// The time for which the server of a connection with open requests may leave a PING without an answer. It may be busy, but it
/// sends the answer before most else.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Reads and writes a connection until it ends.
pub(super) async fn attend<T>(
    mut connection: Connection<T, Bytes>,
    connections: Weak<Connections>,
    id: u64,
) -> Result<(), h2::Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let pings = connection.ping_pong();
    let looking_after = async {
        if let Some(pings) = pings {
            look_after(pings, &connections, id).await;
        }
        // What runs goes on.
        pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = connection => ended,
        () = looking_after => Ok(()),
    };
    // Otherwise the entry stays in the table until a request finds that the connection has ended.
    if let Some(connections) = connections.upgrade() {
        connections.retire(id);
    }
    ended
}

/// Returns when the connection gets no further requests.
async fn look_after(mut pings: PingPong, connections: &Weak<Connections>, id: u64) {
    let mut next = Instant::now() + IDLE;
    loop {
        tokio::time::sleep_until(next).await;
        // No wait keeps this reference: the connections end when no request can use them any more.
        let usage = connections.upgrade().map(|it| it.usage(id));
        next = match usage {
            None | Some(ConnectionUse::Retired) => return,
            Some(ConnectionUse::Idle(until)) => until,
            Some(ConnectionUse::Open) => {
                let answered = tokio::time::timeout(SILENCE_MAX, pings.ping(Ping::opaque())).await;
                if !matches!(answered, Ok(Ok(_))) {
                    if let Some(connections) = connections.upgrade() {
                        connections.retire(id);
                        tracing::warn!(
                            "the server answers no PING on an HTTP/2 connection, which gets no further requests"
                        );
                    }
                    return;
                }
                Instant::now() + IDLE
            }
        };
    }
}
