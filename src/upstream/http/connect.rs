//! One connection to the wrapped server: TCP, TLS over it, or a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use h2::client::{Connection, SendRequest};
use hyper::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::base::io_reason::io_reason;
use crate::net::socket;
use crate::net::tunnel::{Tunnel, UnusableProxy, is_loopback};
use crate::platform;
use crate::platform::files::is_socket;
use crate::tls::TlsError;
use crate::tls::client::{self, Files};
use crate::tls::kept::Kept;
use crate::upstream::http::http2::first_byte::FirstByte;
use crate::upstream::http::http2::handshake::{handshake, no_http2};
use crate::upstream::obstacle::Obstacle;
use crate::upstream::settings::Settings;

/// The time for which an address is tried alone (RFC 8305, Connection Attempt Delay).
const HEAD_START: Duration = Duration::from_millis(250);

/// The number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// A connected byte stream.
pub(in crate::upstream) trait ServerConnection:
    AsyncRead + AsyncWrite + Unpin + Send
{
}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ServerConnection for T {}

/// Where the wrapped server is, and how it is reached.
#[derive(Clone)]
pub(in crate::upstream) struct Connector {
    place: ServerAddress,
    timeout: Duration,
    /// HTTP/2, and no other version.
    http2: bool,
    /// `true` if the last attempt found no server.
    is_away: Arc<AtomicBool>,
}

#[derive(Clone)]
enum ServerAddress {
    Tcp {
        host: Arc<str>,
        port: u16,
        tls: Option<ServerTls>,
    },
    Unix(Arc<Path>),
}

#[derive(Clone)]
struct ServerTls {
    config: Arc<Kept<ClientConfig>>,
    name: ServerName<'static>,
    /// The proxy on the way.
    tunnel: Option<Tunnel>,
}

/// Why an upstream URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    #[error("the upstream URL must begin with http:// or https:// and name a host")]
    Scheme,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Proxy(#[from] UnusableProxy),
    #[error("there is no thread to start the server from: {}", io_reason(.0))]
    Thread(#[from] io::Error),
}

impl Connector {
    pub(in crate::upstream) fn new(url: &Uri, settings: &Settings) -> Result<Self, UrlError> {
        let place = match &settings.socket {
            Some(socket) => ServerAddress::Unix(socket.as_path().into()),
            None => ServerAddress::tcp(url, settings)?,
        };
        Ok(Self {
            place,
            timeout: settings.connect_timeout,
            http2: settings.http2,
            is_away: Arc::default(),
        })
    }

    /// Returns `true` if the server is on loopback or a socket. Then proxy and server are one resource, and what is sent
    /// stays on this machine.
    pub(in crate::upstream) fn is_local(&self) -> bool {
        match &self.place {
            ServerAddress::Unix(_) => true,
            ServerAddress::Tcp { host, .. } => is_loopback(host),
        }
    }

    pub(in crate::upstream) fn speaks_tls(&self) -> bool {
        matches!(self.place, ServerAddress::Tcp { tls: Some(_), .. })
    }

    pub(in crate::upstream) fn speaks_http2(&self) -> bool {
        self.http2
    }

    pub(in crate::upstream) fn scheme(&self) -> &'static str {
        if self.speaks_tls() { "https" } else { "http" }
    }

    /// Reads the files for TLS again after a handshake failed, before this returns.
    pub(in crate::upstream) async fn connect(&self) -> io::Result<Box<dyn ServerConnection>> {
        self.in_time(self.connect_patiently()).await
    }

    /// A connection whose server has said how many requests it takes. Reads the files for TLS again as
    /// [`Connector::connect`] does.
    pub(in crate::upstream::http) async fn connect_http2(
        &self,
    ) -> io::Result<(
        SendRequest<Bytes>,
        Connection<FirstByte<Box<dyn ServerConnection>>, Bytes>,
    )> {
        let connecting = async { handshake(self.connect_patiently().await?).await };
        self.in_time(connecting).await
    }

    async fn in_time<T>(&self, connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let connected =
            connected.unwrap_or_else(|_elapsed| Err(io::Error::from(io::ErrorKind::TimedOut)));
        match &connected {
            Err(error) if self.is_tls_failure(error) => {
                tracing::warn!(error = %io_reason(error), "no TLS with the server: {TLS_SETTINGS}");
                // Awaited, so that the next attempt of the caller already uses files that were renewed.
                self.read_anew().await;
            }
            // The failure is logged once, however many calls meet it.
            Err(error) => {
                if self.is_away.swap(true, Ordering::Relaxed) {
                    tracing::debug!(error = %io_reason(error), "no connection to the upstream");
                } else {
                    tracing::warn!(error = %io_reason(error), "the server cannot be reached; calls fail until it can");
                }
            }
            Ok(_) => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    tracing::info!("the server is reached again");
                }
            }
        }
        connected
    }

    /// Returns `true` if TLS itself failed. With TLS 1.3 a server refuses a certificate after the handshake, and HTTP/2 tells such
    /// an alert by its kind only.
    fn is_tls_failure(&self, error: &io::Error) -> bool {
        client::is_tls(error) || (self.speaks_tls() && error.kind() == io::ErrorKind::InvalidData)
    }

    /// Reads the files for TLS again, at most once a second.
    pub(in crate::upstream) async fn read_anew(&self) {
        if let ServerAddress::Tcp { tls: Some(tls), .. } = &self.place {
            tls.config.reload_after_failure().await;
        }
    }

    async fn connect_patiently(&self) -> io::Result<Box<dyn ServerConnection>> {
        let (host, port, tls) = match &self.place {
            ServerAddress::Unix(path) => {
                return Ok(Box::new(platform::socket::connect(path).await?));
            }
            ServerAddress::Tcp { host, port, tls } => (&**host, *port, tls),
        };
        let Some(tls) = tls else {
            return Ok(Box::new(reach((host, port)).await?));
        };
        match &tls.tunnel {
            None => self.over_tls(tls, reach((host, port)).await?).await,
            Some(tunnel) => {
                let proxy = reach(tunnel.place()).await?;
                let stream = tunnel.open(proxy, (host, port)).await?;
                self.over_tls(tls, stream).await
            }
        }
    }

    async fn over_tls(
        &self,
        tls: &ServerTls,
        stream: impl ServerConnection + 'static,
    ) -> io::Result<Box<dyn ServerConnection>> {
        // Connections that are open keep the files that they began with.
        let connector = TlsConnector::from(tls.config.current());
        let stream = connector.connect(tls.name.clone(), stream).await?;
        // A server that knows nothing of ALPN chooses nothing.
        if self.http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(no_http2());
        }
        Ok(Box::new(stream))
    }

    /// The obstacle that counts until the attempt has an outcome.
    pub(in crate::upstream) fn connecting(&self) -> Obstacle {
        Obstacle::Connecting(self.timeout)
    }

    /// Why there is no connection.
    pub(in crate::upstream) fn obstacle(&self, error: &io::Error) -> Obstacle {
        if client::is_no_tls(error) {
            return Obstacle::NoTls;
        }
        if error.kind() == io::ErrorKind::Unsupported || client::is_other_protocol(error) {
            return Obstacle::NoHttp2;
        }
        match &self.place {
            _ if error.kind() == io::ErrorKind::TimedOut => self.connecting(),
            ServerAddress::Unix(path) => Obstacle::NoConnection(about_socket(path, error)),
            ServerAddress::Tcp { .. } if self.is_tls_failure(error) => {
                Obstacle::NoConnection(format!("{} ({TLS_SETTINGS})", io_reason(error)))
            }
            ServerAddress::Tcp { .. } if error.kind() == io::ErrorKind::ConnectionRefused => {
                let reason = io_reason(error);
                Obstacle::NoConnection(format!("{reason}; the server does not run there"))
            }
            ServerAddress::Tcp { .. } => Obstacle::NoConnection(io_reason(error)),
        }
    }
}

/// The settings that are about TLS to the server.
const TLS_SETTINGS: &str = "upstream.tls.roots names the certificates to trust";

/// Connects to the first address of this host that answers.
async fn reach((host, port): (&str, u16)) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?.take(ADDRESSES_MAX);
    let stream = first_of(addresses.collect()).await?;
    socket::prepare(&stream)?;
    Ok(stream)
}

/// Connects to the first of these addresses that answers. A silent address holds up no other: the next address
/// is tried at the same time (RFC 8305), of the other family if there is one.
async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = in_turn(addresses).into_iter();
    let mut trying = FuturesUnordered::new();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        let next = waiting.next();
        let is_more = next.is_some();
        trying.extend(next.map(TcpStream::connect));
        tokio::select! {
            tried = trying.next() => match tried {
                Some(Ok(stream)) => return Ok(stream),
                // The next address is tried at once.
                Some(Err(error)) => failed = error,
                None => return Err(failed),
            },
            // The slow attempts go on beside the next one, and the first connection wins.
            () = tokio::time::sleep(HEAD_START), if is_more => {}
        }
    }
}

/// The addresses of both families by turns, each in the order of the resolver.
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    // The resolver puts the address that it prefers first (RFC 6724), so that family begins.
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let longer = first.len().max(second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    (0..longer)
        .flat_map(|_| [first.next(), second.next()])
        .flatten()
        .collect()
}

impl ServerAddress {
    fn tcp(url: &Uri, settings: &Settings) -> Result<Self, UrlError> {
        let host = url
            .host()
            .filter(|host| !host.is_empty())
            .ok_or(UrlError::Scheme)?;
        // A URL has an IPv6 address in brackets, which neither the resolver nor TLS accepts.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let (tls, port) = match url.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_| UrlError::Scheme)?;
                let config = match &settings.tls {
                    Some(config) => Arc::clone(config),
                    None => client::client(Files {
                        http2: settings.http2,
                        ..Files::default()
                    })?,
                };
                let tunnel = Tunnel::to(url)?;
                if let Some(tunnel) = &tunnel {
                    tracing::info!(proxy = %tunnel, "the server is reached through the proxy that the environment names");
                }
                let tls = ServerTls {
                    config,
                    name,
                    tunnel,
                };
                (Some(tls), 443)
            }
            _ => return Err(UrlError::Scheme),
        };
        Ok(Self::Tcp {
            host: host.into(),
            port: url.port_u16().unwrap_or(port),
            tls,
        })
    }
}

/// Returns `true` if the path is a file that is no socket. The kernel answers "connection refused" for such a file.
fn about_socket(path: &Path, error: &io::Error) -> String {
    let name = path.display();
    match (error.kind(), std::fs::metadata(path)) {
        (io::ErrorKind::NotFound, _) => format!("there is no {name}"),
        (io::ErrorKind::PermissionDenied, _) => format!("no permission to use {name}"),
        (_, Ok(found)) if !is_socket(&found) => format!("{name} is not a socket"),
        (io::ErrorKind::ConnectionRefused, _) => format!("nobody listens on {name}"),
        _ => io_reason(error),
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn families_take_turns() {
        let all = ["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"].map(address);
        let turns = ["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"].map(address);
        assert_eq!(in_turn(all.into()), turns);
        assert_eq!(in_turn(Vec::new()), []);
    }

    /// An address that takes no connection and says nothing: its queue is full.
    async fn silent() -> (Socket, Vec<TcpStream>, SocketAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&address("127.0.0.1:0").into()).unwrap();
        socket.listen(0).unwrap();
        let here = socket.local_addr().unwrap().as_socket().unwrap();
        let mut queue = Vec::new();
        loop {
            let connecting = TcpStream::connect(here);
            match tokio::time::timeout(Duration::from_millis(200), connecting).await {
                Ok(connected) => queue.push(connected.unwrap()),
                Err(_elapsed) => return (socket, queue, here),
            }
        }
    }

    #[tokio::test]
    async fn a_silent_address_holds_up_no_other() {
        let (_socket, _queue, silent) = silent().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let refused = address("127.0.0.1:9");
        for addresses in [
            vec![silent, there],
            vec![refused, silent, there],
            vec![there, silent],
            vec![silent, refused, there],
        ] {
            let connected = tokio::time::timeout(Duration::from_secs(5), first_of(addresses));
            let stream = connected.await.expect("in time").unwrap();
            assert_eq!(stream.peer_addr().unwrap(), there);
        }
        assert!(first_of(vec![refused, refused]).await.is_err());
        assert!(first_of(Vec::new()).await.is_err());
    }
}
