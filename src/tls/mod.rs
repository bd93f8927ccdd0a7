//! TLS: rustls configurations from PEM files, or a sentence about which of them is wrong and how.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tracing::warn;

pub mod client;
pub mod client_name;
mod dates;
mod error;
pub mod kept;

use crate::base::clock::{Clock as _, System};
use crate::base::io_reason::io_reason;
use kept::Kept;

pub use error::TlsError;

/// Installs aws-lc-rs as the process's default provider of cryptography, for code that does not name a
/// provider. Further calls do nothing.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Losing a race against another caller leaves the same provider installed.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}

/// The files of a listener.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The roots that sign the certificates of clients. `None`: no client is asked for a certificate.
    pub client_roots: Option<PathBuf>,
}

/// Makes the server's configuration: TLS 1.2 and 1.3. A client may show a certificate if there are roots for it; a wrong
/// one ends the handshake. ALPN offers HTTP/1.1 only; HTTP/2 is served only in cleartext, and only if it is configured.
pub fn server_config(files: &ServerFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let (certificate, key) = (&*files.certificate, &*files.key);
    let chain = certificates(certificate)?;
    let private = private_key(key)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::new(certificate, e))?;
    let builder = match &files.client_roots {
        Some(roots) => builder.with_client_cert_verifier(client_verifier(roots, provider)?),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, private)
        .map_err(|e| TlsError::pair(certificate, key, &e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Makes the server's configuration so that its files can be read anew while the listener serves.
pub fn server(files: ServerFiles) -> Result<Arc<Kept<ServerConfig>>, TlsError> {
    Kept::new(move || {
        let config = server_config(&files)?;
        // The file may be renewed while the listener serves, so it is no reason to end.
        if let Err(error) = check_dates(&files) {
            warn!(%error, "clients refuse the certificate of listen.tls");
        }
        Ok(Arc::unwrap_or_clone(config))
    })
}

/// Fails if the certificate has expired or is not valid yet.
pub fn check_dates(files: &ServerFiles) -> Result<(), TlsError> {
    let now = UnixTime::since_unix_epoch(Duration::from_millis(System.now_ms()));
    let chain = certificates(&files.certificate)?;
    let outdated = chain.first().and_then(|own| dates::outdated(own, now));
    outdated.map_or(Ok(()), |why| Err(TlsError::new(&files.certificate, why)))
}

/// A client without a certificate may have a token.
fn client_verifier(
    roots: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(roots)? {
        store
            .add(certificate)
            .map_err(|e| TlsError::new(roots, e))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|e| TlsError::new(roots, e))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(file)?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::new(file, broken(&e)))?;
    if chain.is_empty() {
        return Err(TlsError::new(
            file,
            "holds no certificate; it must have a \"BEGIN CERTIFICATE\" section (PEM)",
        ));
    }
    Ok(chain)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|e| TlsError::new(file, broken(&e)))
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file)
        .map_err(|e| TlsError::new(file, format!("cannot be read: {}", io_reason(&e))))
}

/// Returns the error in a PEM file. The parser's own message would print the line, which may be part of a key.
fn broken(error: &pem::Error) -> &'static str {
    if matches!(error, pem::Error::NoItemsFound) {
        "holds no private key; it must have a \"BEGIN PRIVATE KEY\" section (PEM, without a password)"
    } else if matches!(error, pem::Error::MissingSectionEnd { .. }) {
        "is cut off: a PEM section does not end"
    } else {
        "is damaged: it holds a PEM section that cannot be read"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    struct CertificateDirectory(PathBuf);

    impl CertificateDirectory {
        fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let place = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("raincheck-tls-{}-{place}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }

        fn refusal(&self, certificate: &Path, key: &Path) -> String {
            let files = files(certificate, key);
            let refusal = server_config(&files).unwrap_err().to_string();
            refusal.replace(&self.0.join("").display().to_string(), "")
        }
    }

    impl Drop for CertificateDirectory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn files(certificate: &Path, key: &Path) -> ServerFiles {
        ServerFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_roots: None,
        }
    }

    fn pair() -> (String, String) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    #[test]
    fn a_certificate_and_its_key() {
        let directory = CertificateDirectory::new();
        let (certificate, key) = pair();
        let certificate = directory.file("c.pem", &certificate);
        let key = directory.file("k.pem", &key);
        let config = server_config(&files(&certificate, &key)).unwrap();
        assert_eq!(config.alpn_protocols, [b"http/1.1"]);
    }

    #[test]
    fn what_is_wrong_is_said_of_the_file_that_is_wrong() {
        let directory = CertificateDirectory::new();
        let (certificate, key) = pair();
        let good = directory.file("c.pem", &certificate);
        let good_key = directory.file("k.pem", &key);
        let missing = directory.0.join("none.pem");
        let why = io_reason(&std::fs::read(&missing).unwrap_err());
        assert_eq!(
            directory.refusal(&missing, &good_key),
            format!("none.pem: cannot be read: {why}")
        );
        assert_eq!(
            directory.refusal(&good_key, &good_key),
            "k.pem: holds no certificate; it must have a \"BEGIN CERTIFICATE\" section (PEM)"
        );
        assert_eq!(
            directory.refusal(&good, &good),
            "c.pem: holds no private key; it must have a \"BEGIN PRIVATE KEY\" section (PEM, \
             without a password)"
        );
        let (_, other) = pair();
        let other = directory.file("other.pem", &other);
        let refusal = directory.refusal(&good, &other);
        assert!(refusal.starts_with("other.pem: is not the key of the certificate in "));
        let cut = directory.file("cut.pem", key.get(..key.len() / 2).unwrap());
        assert_eq!(
            directory.refusal(&good, &cut),
            "cut.pem: is cut off: a PEM section does not end"
        );
        let junk = directory.file(
            "junk.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        assert!(
            directory
                .refusal(&junk, &good_key)
                .starts_with("junk.pem: cannot be used: ")
        );
    }
}
