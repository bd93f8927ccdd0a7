//! The beginning of an HTTP/2 connection to the wrapped server.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::{Builder, Connection, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::upstream::http::http2::connections::STREAMS_MAX;

/// How much of one answer may wait unread, as in the buffer of an HTTP/1.1 connection. The connection has room for as
/// much of every request on it, so that no client that reads slowly holds up the answers of others.
const UNREAD_MAX: u32 = 64 * 1024;

/// A response head larger than this is refused.
const HEAD_BYTES_MAX: u32 = 64 * 1024;

/// Sends the preface, and waits for the server's settings: they say how many requests the connection takes, and that
/// the server speaks HTTP/2 at all. No request was sent before.
pub(in crate::upstream::http) async fn handshake<T>(
    stream: T,
) -> io::Result<(SendRequest<Bytes>, Connection<T, Bytes>)>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (sender, mut connection) = Builder::new()
        .enable_push(false)
        .initial_window_size(UNREAD_MAX)
        .initial_connection_window_size(UNREAD_MAX * u32::from(STREAMS_MAX))
        .max_header_list_size(HEAD_BYTES_MAX)
        // Until the server has said how many.
        .initial_max_send_streams(0)
        .handshake(stream)
        .await
        .map_err(broken)?;
    poll_fn(|context| match connection.poll_unpin(context) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(no_http2())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(broken(error))),
        Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((sender, connection))
}

/// A server that speaks HTTP/1.1 only refuses the preface, which is no HTTP/2, or just closes the connection.
fn broken(error: h2::Error) -> io::Error {
    match error.into_io() {
        Some(error) if !is_closed(error.kind()) => error,
        Some(_) | None => no_http2(),
    }
}

fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
    )
}

/// The error for a server that does not speak HTTP/2.
pub(in crate::upstream::http) fn no_http2() -> io::Error {
    let text = "the server did not answer in HTTP/2, which upstream.http2 says it speaks";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
