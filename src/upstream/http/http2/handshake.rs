//! The beginning of an HTTP/2 connection to the wrapped server.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::{Builder, Connection, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::upstream::http::http2::connections::{REQUESTS_MAX, STREAMS_MAX};
use crate::upstream::http::http2::first_byte::FirstByte;

/// The number of bytes of one answer that may wait unread, as in the buffer of an HTTP/1.1 connection. The connection has room for as
/// much of every request on it, so that no client that reads slowly holds up the answers of others.
const UNREAD_MAX: u32 = 64 * 1024;

/// How small the frames may be, on average, in which all answers of a connection wait unread. A client that does not read
/// may have as many as [`UNREAD_MAX`] holds. h2 ends a connection with all its calls when more small frames than that
/// wait, because it keeps about 256 bytes for each of them: 512 KiB for such an answer, 64 MiB for a connection.
const SMALL_FRAME: usize = 32;

/// The cost of an unread frame in h2's budget: so much less as it has bytes, and nothing if it has as many.
const FRAME_COST: usize = 256;

const SMALL_FRAMES_MAX: usize = STREAMS_MAX as usize * (UNREAD_MAX as usize / SMALL_FRAME);

/// For how long a server may go on sending on a stream that was reset. Each such stream takes about half a KiB.
const RESET_KNOWN: Duration = Duration::from_secs(30);

/// A response head larger than this is refused.
const HEAD_BYTES_MAX: u32 = 64 * 1024;

/// Sends the preface, and waits for the server's settings: they say how many requests the connection takes, and that
/// the server speaks HTTP/2 at all. No request was sent before.
pub(in crate::upstream::http) async fn handshake<T>(
    stream: T,
) -> io::Result<(SendRequest<Bytes>, Connection<FirstByte<T>, Bytes>)>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (stream, is_other) = FirstByte::new(stream);
    let (sender, mut connection) = Builder::new()
        .enable_push(false)
        .initial_window_size(UNREAD_MAX)
        .initial_connection_window_size(UNREAD_MAX * u32::from(STREAMS_MAX))
        .data_frame_budget(SMALL_FRAMES_MAX * (FRAME_COST - SMALL_FRAME))
        .max_header_list_size(HEAD_BYTES_MAX)
        // What the server still sends on a stream that was reset ends no other stream. The number of requests on a
        // connection bounds what that takes.
        .max_concurrent_reset_streams(REQUESTS_MAX)
        .reset_stream_duration(RESET_KNOWN)
        .max_local_error_reset_streams(None)
        // Until the server has said how many.
        .initial_max_send_streams(0)
        .handshake(stream)
        .await
        .map_err(|error| broken(error, &is_other))?;
    // No job reads the connection yet, so it is polled here until the settings are there.
    poll_fn(|context| match connection.poll_unpin(context) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(ended(io::ErrorKind::UnexpectedEof))),
        Poll::Ready(Err(error)) => Poll::Ready(Err(broken(error, &is_other))),
        Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((sender, connection))
}

/// Only bytes that are no HTTP/2 show that the server does not speak it. A server that is about to start or to end also
/// closes connections, or goes away, as HTTP/2 says it.
fn broken(error: h2::Error, is_other: &AtomicBool) -> io::Error {
    if error.is_library() || is_other.load(Ordering::Relaxed) {
        return no_http2();
    }
    match error.into_io() {
        Some(error) if !is_closed(error.kind()) => error,
        Some(error) => ended(error.kind()),
        None => ended(io::ErrorKind::ConnectionAborted),
    }
}

fn is_closed(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
    )
}

/// Some servers that speak HTTP/1.1 only also just close the connection, so the text names the setting.
fn ended(kind: io::ErrorKind) -> io::Error {
    let text = "it ended the connection before it said how many requests it takes over HTTP/2 (upstream.http2)";
    io::Error::new(kind, text)
}

/// The error for a server that does not speak HTTP/2.
pub(in crate::upstream::http) fn no_http2() -> io::Error {
    let text = "the server did not answer in HTTP/2, which upstream.http2 says it speaks";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
