//! A Redis that speaks TLS.

use crate::authority::Authority;
use crate::directory::TempDir;
use crate::ports::ReservedPort;
use crate::redis_server::RedisServer;

/// A server that speaks only TLS on TCP, beside its socket.
#[derive(Debug)]
pub(crate) struct TlsServer {
    pub(crate) url: String,
    pub(crate) authority: Authority,
    _server: RedisServer,
    _port: ReservedPort,
    _files: TempDir,
}

impl TlsServer {
    /// `asks`: whether clients must show a certificate.
    pub(crate) fn start(asks: &str) -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.issue();
        let files = TempDir::new();
        let write = |name, text: &str| files.file(name, text).display().to_string();
        let port = ReservedPort::new();
        let number = port.number().to_string();
        let server = RedisServer::with(&[
            "--tls-port",
            &number,
            "--tls-auth-clients",
            asks,
            "--tls-cert-file",
            &write("certificate", &certificate),
            "--tls-key-file",
            &write("key", &key),
            "--tls-ca-cert-file",
            &write("roots", &authority.roots()),
        ]);
        Self {
            url: format!("rediss://localhost:{number}/0"),
            authority,
            _server: server,
            _port: port,
            _files: files,
        }
    }
}
