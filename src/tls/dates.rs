//! Checks whether a certificate is valid now. A server with an outdated one starts, and every client refuses it.

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// Returns the error in the dates of the certificate.
pub(super) fn outdated(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    // The dates are looked at before the issuers, and there are none to trust here: that is the clients' business.
    let usage = KeyUsage::server_auth();
    let verified = certificate.verify_for_usage(&[], &[], &[], now, usage, None, None);
    let error = verified.err()?;
    if let Error::CertExpired { not_after, .. } = error {
        let since = now.as_secs().saturating_sub(not_after.as_secs());
        return Some(format!("expired {} ago", in_words(since)));
    }
    if let Error::CertNotValidYet { not_before, .. } = error {
        let until = not_before.as_secs().saturating_sub(now.as_secs());
        return Some(format!("is not valid before {} from now", in_words(until)));
    }
    None
}

fn in_words(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..3_600 => (seconds / 60, "minutes"),
        3_600..172_800 => (seconds / 3_600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{count} {unit}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// 2026-01-01.
    const BEGIN: u64 = 1_767_225_600;
    const DAY: u64 = 86_400;

    #[test]
    fn a_certificate_counts_between_its_dates() {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 11);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let at = |seconds| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            outdated(certificate.der(), now)
        };
        assert_eq!(at(BEGIN + DAY), None);
        assert_eq!(at(BEGIN + 13 * DAY).unwrap(), "expired 3 days ago");
        assert_eq!(at(BEGIN + 10 * DAY + 7_200).unwrap(), "expired 2 hours ago");
        let early = "is not valid before 30 minutes from now";
        assert_eq!(at(BEGIN - 1_800).unwrap(), early);
    }
}
