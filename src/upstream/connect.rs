//! One connection to the wrapped server: TCP, or TLS over it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::ConfigVerifierExt as _;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connected byte stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Where the wrapped server is, and how it is reached.
#[derive(Clone)]
pub(super) struct Connector {
    host: Arc<str>,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
}

/// Why an upstream URL is of no use.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    #[error("the upstream URL must begin with http:// or https:// and name a host")]
    Scheme,
    #[error("the system's certificates cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("there is no thread to start the server from: {0}")]
    Thread(#[from] io::Error),
}

impl Connector {
    pub(super) fn new(url: &Uri, timeout: Duration) -> Result<Self, UrlError> {
        let host = url
            .host()
            .filter(|host| !host.is_empty())
            .ok_or(UrlError::Scheme)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let (tls, port) = match url.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                // Whoever came first chose; both are the same provider.
                let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
                let mut config = rustls::ClientConfig::with_platform_verifier()?;
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                let name = ServerName::try_from(host.to_owned()).map_err(|_| UrlError::Scheme)?;
                (Some((TlsConnector::from(Arc::new(config)), name)), 443)
            }
            _ => return Err(UrlError::Scheme),
        };
        Ok(Self {
            host: host.into(),
            port: url.port_u16().unwrap_or(port),
            tls,
            timeout,
        })
    }

    /// Loopback: proxy and server are one resource, and what is sent stays on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self
                .host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let connected = tokio::time::timeout(self.timeout, self.connect_patiently()).await;
        connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn connect_patiently(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        // A peer that vanished without a word is noticed within a minute.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(15))
            .with_interval(Duration::from_secs(15))
            .with_retries(3);
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(Duration::from_secs(30)))?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some((tls, name)) => Ok(Box::new(tls.connect(name.clone(), stream).await?)),
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
