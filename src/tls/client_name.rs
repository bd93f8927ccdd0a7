//! Whom the certificate of a client names: its SPIFFE id, or else its one DNS name.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

const SPIFFE: &str = "spiffe://";

/// The one name of a certificate whose chain was verified. `None`: it has no name, or more than one. A
/// workload's certificate has exactly one URI (SPIFFE, X509-SVID, section 2).
pub fn client_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut uris = certificate.valid_uri_names();
    if let Some(uri) = uris.next() {
        let is_id = uri.len() > SPIFFE.len() && uri.starts_with(SPIFFE);
        return (is_id && uris.next().is_none()).then(|| uri.to_owned());
    }
    let mut names = certificate.valid_dns_names();
    let name = names.next()?;
    let is_one = names.next().is_none() && !name.starts_with('*');
    is_one.then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn named(names: &[&str], uris: &[&str]) -> Option<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        for uri in uris {
            params
                .subject_alt_names
                .push(SanType::URI((*uri).try_into().unwrap()));
        }
        let key = KeyPair::generate().unwrap();
        client_name(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn a_certificate_names_one_client_or_none() {
        let id = "spiffe://example.org/ns/a/sa/b";
        assert_eq!(named(&[], &[id]).as_deref(), Some(id));
        assert_eq!(named(&["a.example"], &[id]).as_deref(), Some(id));
        assert_eq!(named(&["A.example"], &[]).as_deref(), Some("a.example"));
        for (names, uris) in [
            (&[][..], &[][..]),
            (&["a.example", "b.example"], &[]),
            (&["*.example"], &[]),
            (&["192.0.2.1"], &[]),
            (&["a.example"], &["https://a.example"]),
            (&["a.example"], &["spiffe://"]),
            (&[], &[id, "spiffe://example.org/other"]),
        ] {
            assert_eq!(named(names, uris), None, "{names:?} {uris:?}");
        }
    }
}
