//! TLS to Redis: whom we trust, and who we are.

use raincheck::store::Store as _;
use raincheck::store::redis::{Namespace, OpenError, Options, Redis};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::redis_server::RedisServer;
use crate::rig::{Directory, create_until, done, hour};

#[tokio::test]
async fn tls_works_for_whom_we_trust_and_only_for_them() {
    let server = Tls::start("no");
    let mut options = options(&server.url);
    let refused = open(&options).await.unwrap_err();
    assert!(
        matches!(refused, OpenError::Unreachable { .. }),
        "{refused:?}"
    );
    options.tls.roots = Some(Authority::new().roots());
    let refused = open(&options).await.unwrap_err();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("certificate") && !why.contains('\n'), "{why}");
    options.tls.roots = Some(server.authority.roots());
    let store = open(&options).await.unwrap();
    done(store.commit(&create_until(hour())).await.unwrap());
    options.tls.roots = Some(b"-----BEGIN CERTIFICATE-----\n".to_vec());
    assert!(open(&options).await.is_err());
}

#[tokio::test]
async fn a_server_that_asks_who_we_are_is_shown_our_certificate() {
    let server = Tls::start("yes");
    let mut options = options(&server.url);
    options.tls.roots = Some(server.authority.roots());
    let refused = open(&options).await.unwrap_err();
    assert!(
        matches!(refused, OpenError::Unreachable { .. }),
        "{refused:?}"
    );
    let stranger = Authority::new().issue();
    options.tls.identity = Some((stranger.0.into(), stranger.1.into()));
    assert!(open(&options).await.is_err());
    let ours = server.authority.issue();
    options.tls.identity = Some((ours.0.into(), ours.1.into()));
    let store = open(&options).await.unwrap();
    done(store.commit(&create_until(hour())).await.unwrap());
}

/// Signs certificates for localhost.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    fn roots(&self) -> Vec<u8> {
        self.certificate.clone().into()
    }

    /// Certificate and key.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        // Named like its authority, OpenSSL would take it for one that signed itself.
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server that speaks only TLS on TCP, beside its socket.
struct Tls {
    url: String,
    authority: Authority,
    _server: RedisServer,
    _files: Directory,
}

impl Tls {
    /// `asks`: whether clients must show a certificate.
    fn start(asks: &str) -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.issue();
        let files = Directory::new();
        std::fs::create_dir(&files.0).unwrap();
        let write = |name: &str, text: &str| {
            let path = files.0.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let port = free_port().to_string();
        let server = RedisServer::with(&[
            "--tls-port",
            &port,
            "--tls-auth-clients",
            asks,
            "--tls-cert-file",
            &write("certificate", &certificate),
            "--tls-key-file",
            &write("key", &key),
            "--tls-ca-cert-file",
            &write("roots", &authority.certificate),
        ]);
        Self {
            url: format!("rediss://localhost:{port}/0"),
            authority,
            _server: server,
            _files: files,
        }
    }
}

/// Free a moment ago; Redis cannot be asked to choose one.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn options(url: &str) -> Options {
    Options::new(url, Namespace::parse("ns").unwrap())
}

async fn open(options: &Options) -> Result<Redis, OpenError> {
    Redis::open(options, &TaskTracker::new(), &CancellationToken::new()).await
}
