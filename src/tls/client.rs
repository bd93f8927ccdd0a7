//! TLS to the wrapped server: the trusted roots, raincheck's own certificate, and the failures which prove
//! that the server did not look at a request.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::{AlertDescription, ClientConfig, InvalidMessage, RootCertStore};
use rustls_platform_verifier::Verifier;

use super::error::TlsError;
use super::kept::Kept;
use super::{certificates, private_key};

/// The files for TLS to the server, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// The roots to trust instead of the machine's roots.
    pub roots: Option<PathBuf>,
    /// Raincheck's own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The connection is for HTTP/2, and for no other version.
    pub http2: bool,
}

/// Reads the files. Without a file of roots, the machine's roots are trusted.
pub fn client(files: Files) -> Result<Arc<Kept<ClientConfig>>, TlsError> {
    Kept::new(move || client_config(&files))
}

fn client_config(files: &Files) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match &files.roots {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots
                    .add(certificate)
                    .map_err(|e| TlsError::new(file, format!("cannot be used: {e}")))?;
            }
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|e| TlsError::new(file, format!("cannot be used: {e}")))?
        }
        None => Arc::new(Verifier::new(Arc::clone(&provider)).map_err(TlsError::no_roots)?),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::machine)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &files.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|e| TlsError::pair(certificate, key, &e))?,
    };
    let protocol: &[u8] = if files.http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// Returns `true` if TLS itself failed.
pub fn is_tls(error: &(dyn Error + 'static)) -> bool {
    rustls_error(error).is_some()
}

/// Returns `true` if the peer does not speak TLS at all.
pub fn is_no_tls(error: &(dyn Error + 'static)) -> bool {
    matches!(
        rustls_error(error),
        Some(rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType
        ))
    )
}

/// Returns `true` if the server does not speak the version of HTTP that it was asked for.
pub fn is_other_protocol(error: &(dyn Error + 'static)) -> bool {
    matches!(
        rustls_error(error),
        Some(rustls::Error::AlertReceived(
            AlertDescription::NoApplicationProtocol
        ))
    )
}

/// Returns `true` if the server refused raincheck's certificate, or demands one. With TLS 1.3 this arrives after the
/// request was written; but a server reads no request before the handshake is complete, and we never begin another
/// one on the same connection (no renegotiation, no post-handshake authentication).
pub fn is_refused_identity(error: &(dyn Error + 'static)) -> bool {
    matches!(
        rustls_error(error),
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                // This alert is about a signature of the handshake; a record that cannot be read has another
                // alert.
                | AlertDescription::DecryptError
        ))
    )
}

/// Finds the error of rustls. An [`io::Error`] does not return the error that it holds as its source.
fn rustls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let held = error.downcast_ref::<io::Error>();
        next = match held.and_then(io::Error::get_ref) {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}
