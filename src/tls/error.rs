//! The error in a file.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::base::io_reason::io_reason;

/// The error in a file, on one line.
#[derive(Debug, thiserror::Error)]
#[error("{}{wrong}", file.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default())]
pub struct TlsError {
    /// `None`: the error is about the machine's own roots.
    file: Option<PathBuf>,
    wrong: String,
}

impl TlsError {
    pub(super) fn new(file: &Path, wrong: impl fmt::Display) -> Self {
        Self {
            file: Some(file.to_owned()),
            wrong: io_reason(&wrong),
        }
    }

    /// The error for a system whose roots are not found.
    pub(super) fn no_roots(error: impl fmt::Display) -> Self {
        let mut found = Self::machine(error);
        found
            .wrong
            .push_str("; the variable SSL_CERT_FILE can name a file of them (PEM)");
        found
    }

    pub(super) fn machine(error: impl fmt::Display) -> Self {
        Self {
            file: None,
            wrong: format!(
                "the system's certificates cannot be used: {}",
                io_reason(&error)
            ),
        }
    }

    /// The error for a certificate and a key that do not fit together.
    pub(super) fn pair(certificate: &Path, key: &Path, error: &rustls::Error) -> Self {
        if matches!(error, rustls::Error::InconsistentKeys(_)) {
            let of = certificate.display();
            Self::new(key, format!("is not the key of the certificate in {of}"))
        } else {
            Self::new(certificate, format!("cannot be used: {error}"))
        }
    }
}
