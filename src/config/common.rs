//! Checks that several sections have in common.

use std::time::Duration;

use super::problem::Problem;
use super::settings_tls::CertificateFiles;

/// The largest limit: beyond any machine, and within the range of a semaphore.
pub(super) const PERMITS_MAX: usize = 1_000_000;

/// Refuses a duration of zero.
pub(super) fn positive(key: &str, duration: Duration) -> Result<(), Problem> {
    if duration.is_zero() {
        let text = "must be longer than 0: nothing could happen in time";
        return Err(Problem::new(key, text));
    }
    Ok(())
}

/// Reads a certificate and a key: both, or none. `section` is the section of the two settings.
pub(super) fn tls(
    section: &str,
    certificate: Option<String>,
    key: Option<String>,
) -> Result<Option<CertificateFiles>, Problem> {
    let missing = |what: &str, other: &str| {
        Problem::new(
            format!("{section}.{what}"),
            format!("not set, but {section}.{other} is; TLS needs both, PEM files"),
        )
    };
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles {
            certificate: certificate.into(),
            key: key.into(),
        })),
        (Some(_), None) => Err(missing("key", "certificate")),
        (None, Some(_)) => Err(missing("certificate", "key")),
    }
}
