//! Who signs certificates for the tests.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};

/// Signs certificates for localhost.
#[derive(Debug)]
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// PEM.
    pub(crate) fn roots(&self) -> String {
        self.certificate.clone()
    }

    /// Certificate and key.
    pub(crate) fn issue(&self) -> (String, String) {
        self.issue_until(4000)
    }

    /// The same, until the end of that year.
    pub(crate) fn issue_until(&self, year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        // Named like its authority, OpenSSL would take it for one that signed itself.
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
