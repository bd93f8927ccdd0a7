//! A client's side of TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::Authority;

/// A certificate and its key, in PEM.
pub(crate) type Identity = (String, String);

/// Connects as a client that trusts these authorities, and shows this certificate where it is asked for one.
pub(crate) async fn connect(
    address: SocketAddr,
    trusted: &[&Authority],
    identity: Option<&Identity>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for authority in trusted {
        let root = CertificateDer::from_pem_slice(authority.roots().as_bytes()).unwrap();
        roots.add(root).unwrap();
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![chain], key).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}
