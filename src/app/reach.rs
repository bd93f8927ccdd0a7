//! Tells the operator at the start whether the server can be reached, before a client finds out.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tracing::warn;

use crate::config::Wrapped;
use crate::io_reason::io_reason;

/// Opens one connection to the server and closes it again. Nothing is sent.
pub(super) async fn tell_if_away(server: Wrapped, patience: Duration) {
    let connecting = async {
        match &server {
            Wrapped::Url(url) => {
                let usual = if url.scheme_str() == Some("https") {
                    443
                } else {
                    80
                };
                let host = url.host().unwrap_or_default();
                let host = host.trim_matches(['[', ']']);
                let port = url.port_u16().unwrap_or(usual);
                TcpStream::connect((host, port)).await.map(drop)
            }
            Wrapped::Unix(socket) => UnixStream::connect(&socket.file).await.map(drop),
            // A program that cannot be run is told of when it is started.
            Wrapped::Command(_) => Ok(()),
        }
    };
    let connected = timeout(patience, connecting).await;
    let connected = connected.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
    if let Err(error) = connected {
        // The first line of the log names the server.
        warn!(error = %io_reason(&error), "the server cannot be reached yet; calls fail until it can");
    }
}
