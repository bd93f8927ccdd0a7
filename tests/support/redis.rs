//! A Redis server for one test: a child process on a Unix socket, which ends with the test.
//!
//! A test binary that uses only a part of it says `#[expect(dead_code, reason = "..")]` at its `mod`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::directory::TempDir;
use crate::eventually::eventually_blocking;

/// A running server. The test fails if `redis-server` is not installed, because skipping it would look like
/// success.
#[derive(Debug)]
pub(crate) struct RedisServer {
    child: Child,
    directory: TempDir,
    arguments: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let directory = TempDir::new();
        let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        let child = spawn(directory.path(), &arguments);
        let server = Self {
            child,
            directory,
            arguments,
        };
        server.wait();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}?db=0", self.socket().display())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// SIGKILL: what it does not keep on disk is lost.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a new server on the same socket, with what the old server kept on disk.
    pub(crate) fn restart(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        self.child = spawn(self.directory.path(), &self.arguments);
        self.wait();
    }

    /// Stops the process by SIGSTOP: connections stay open, and the server does not answer.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").arg(signal).arg(pid).status().unwrap();
        assert!(sent.success(), "kill {signal}");
    }

    fn wait(&self) {
        let answers = || answers(&self.socket());
        eventually_blocking(Duration::from_secs(10), "redis-server answers", answers);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &Path, arguments: &Vec<String>) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(directory.join("s"))
        .arg("--dir")
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed: the Redis store is not tested without it")
}

/// Whether the server answers. An error counts, because a server with a password answers with an error.
fn answers(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let mut answer = [0; 1];
    stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut answer).is_ok()
}
