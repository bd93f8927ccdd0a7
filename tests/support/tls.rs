//! A Redis that speaks TLS.

use std::path::PathBuf;

use crate::authority::Authority;
use crate::ports::ReservedPort;
use crate::redis_server::RedisServer;

/// A server that speaks only TLS on TCP, beside its socket.
#[derive(Debug)]
pub(crate) struct TlsServer {
    pub(crate) url: String,
    pub(crate) authority: Authority,
    _server: RedisServer,
    _port: ReservedPort,
    _files: Files,
}

impl TlsServer {
    /// `asks`: whether clients must show a certificate.
    pub(crate) fn start(asks: &str) -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.issue();
        let files = Files::new();
        let port = ReservedPort::new();
        let number = port.number().to_string();
        let server = RedisServer::with(&[
            "--tls-port",
            &number,
            "--tls-auth-clients",
            asks,
            "--tls-cert-file",
            &files.write("certificate", &certificate),
            "--tls-key-file",
            &files.write("key", &key),
            "--tls-ca-cert-file",
            &files.write("roots", &authority.roots()),
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

/// A directory that is removed with the test.
#[derive(Debug)]
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("rct-{}", &random[..12]));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The path of a new file.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
