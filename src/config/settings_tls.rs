//! The files for TLS that the program runs on.

use std::path::PathBuf;

/// The files of a certificate and its key, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The files for TLS to a server: the wrapped one, or Redis. PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTlsFiles {
    /// The roots to trust instead of the machine's roots.
    pub roots: Option<PathBuf>,
    /// The certificate by which raincheck identifies itself.
    pub identity: Option<CertificateFiles>,
}
