//! HTTP without TLS on a listener that speaks TLS: most often the client's URL begins with `http` instead of `https`.

use std::convert::Infallible;
use std::io;
use std::sync::Once;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tracing::{debug, warn};

use super::outbound::response;
use crate::base::io_reason::io_reason;
use crate::mcp::error::RpcError;

/// The largest request head that is read before the refusal.
const HEAD_MAX: usize = 8 * 1024;

/// Returns `true` if the client's first byte begins a request of HTTP. A client that speaks TLS begins with the byte
/// 22 (RFC 8446, section 5.1). Waits for that byte and leaves it unread, so this may be dropped at any time.
pub(super) async fn speaks_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let peeked = stream.peek(&mut first).await?;
    // The methods of HTTP begin with capital letters. A client that closed the connection sent no byte.
    Ok(peeked == 1 && first[0].is_ascii_uppercase())
}

/// Answers the first request with 400 and a sentence, and closes the connection. The request may carry a credential, which is
/// neither read nor logged.
pub(super) async fn refuse<S>(stream: S, header_timeout: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tell();
    let service = service_fn(|_request: hyper::Request<Incoming>| {
        let error = RpcError::invalid_request(
            "Invalid request: this listener speaks HTTPS (listen.tls); begin the URL with https://",
        );
        let refusal = response::refusal_and_close(StatusCode::BAD_REQUEST, &error);
        async move { Ok::<_, Infallible>(refusal) }
    });
    let served = http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        debug!(error = %io_reason(&error), "a connection without TLS ended with an error");
    }
}

/// Logs such a client once in the life of the process, so that its requests cannot fill the log.
fn tell() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        warn!(
            "a request came without TLS and was refused, and others will be; this listener speaks HTTPS only \
             (listen.tls), so clients write https://"
        );
    });
}
