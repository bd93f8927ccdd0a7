//! A certificate authority for the tests.

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

    /// The authority's certificate, in PEM.
    pub(crate) fn roots(&self) -> String {
        self.certificate.clone()
    }

    /// Issues a certificate and its key, in PEM.
    pub(crate) fn issue(&self) -> (String, String) {
        self.issue_until(4000)
    }

    /// Issues a certificate that is valid until the end of that year.
    pub(crate) fn issue_until(&self, year: i32) -> (String, String) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        // The subject must differ from the authority's: otherwise OpenSSL takes the certificate for a
        // self-signed certificate.
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        self.sign(&params)
    }

    /// Signs a certificate for a new key, and gives both in PEM.
    pub(crate) fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
