//! A relay in front of a server that listens on TCP, which makes the server reachable over TLS or a Unix
//! socket.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::authority::Authority;
use crate::scripted::Listening;

/// The relay. Dropping it closes its connections.
#[derive(Debug)]
pub(crate) struct Relay {
    listening: Listening,
    terms: Arc<Mutex<Arc<ServerConfig>>>,
}

impl Relay {
    pub(crate) async fn over_tls(terms: ServerConfig, target: SocketAddr) -> Self {
        let terms = Arc::new(Mutex::new(Arc::new(terms)));
        let current = Arc::clone(&terms);
        let listening = Listening::start(move |stream| {
            let acceptor = TlsAcceptor::from(Arc::clone(&current.lock().unwrap()));
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    relay_to(target, stream).await;
                }
            }
        });
        Self {
            listening: listening.await,
            terms,
        }
    }

    /// The URL of the relay, with this host. Another host than the certificate's gives another URL of the
    /// same server.
    pub(crate) fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/mcp", self.listening.address.port())
    }

    /// Changes the TLS configuration from the next connection on.
    pub(crate) fn change(&self, terms: ServerConfig) {
        *self.terms.lock().unwrap() = Arc::new(terms);
    }
}

/// Relays from a Unix socket until the guard is dropped.
pub(crate) fn over_socket(file: &Path, target: SocketAddr) -> DropGuard {
    let listener = UnixListener::bind(file).unwrap();
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let relayed = relay_to(target, stream);
            tokio::spawn(stop.clone().run_until_cancelled_owned(relayed));
        }
    }));
    guard
}

async fn relay_to<S: AsyncRead + AsyncWrite + Unpin>(target: SocketAddr, mut stream: S) {
    let mut server = TcpStream::connect(target).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut server).await;
}

/// A server that shows this certificate, and asks for one of `clients`.
pub(crate) fn terms(
    (certificate, key): (String, String),
    clients: Option<&Authority>,
    version: &'static SupportedProtocolVersion,
) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(authority.roots().as_bytes()).unwrap();
            roots.add(root).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    builder.with_single_cert(vec![certificate], key).unwrap()
}
