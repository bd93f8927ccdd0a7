//! One replica of the built program: started, killed, frozen, stopped.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::process;
use crate::client::Client;

/// Starts and ends are waited for so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A replica. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Replica {
    child: Option<Child>,
    folder: PathBuf,
    /// Without one, the configuration says what is wrapped.
    upstream: Option<String>,
    address: SocketAddr,
}

impl Replica {
    /// Starts a replica by this configuration, at an address that it keeps over restarts.
    pub(crate) async fn start(folder: PathBuf, config: &str, upstream: &str) -> Self {
        Self::start_by(folder, config, Some(upstream)).await
    }

    pub(crate) async fn start_by(folder: PathBuf, config: &str, upstream: Option<&str>) -> Self {
        std::fs::create_dir(&folder).expect("a folder for a replica");
        std::fs::write(folder.join("raincheck.toml"), config).expect("its configuration");
        let mut replica = Self {
            child: None,
            folder,
            upstream: upstream.map(ToOwned::to_owned),
            address: free_address(),
        };
        replica.restart().await;
        replica
    }

    pub(crate) fn client(&self) -> Client {
        Client::of(self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill(&mut child);
        }
    }

    /// Starts it, and waits until it takes connections.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.child = Some(self.command().spawn().expect("the built program"));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).await.is_err() {
            assert!(self.runs(), "a replica did not start\n{}", self.log());
            assert!(
                Instant::now() < deadline,
                "a replica does not listen\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn freeze(&self) {
        process::signal(self.child.as_ref(), "STOP");
    }

    pub(crate) fn thaw(&self) {
        process::signal(self.child.as_ref(), "CONT");
    }

    /// SIGTERM, and how it ended; `None` if it had to be killed after `patience`.
    pub(crate) async fn stop(&mut self, patience: Duration) -> Option<ExitStatus> {
        process::signal(self.child.as_ref(), "TERM");
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let status = self.child.as_mut().and_then(|child| child.try_wait().ok());
            if let Some(Some(status)) = status {
                self.child = None;
                return Some(status);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.kill();
        None
    }

    fn runs(&mut self) -> bool {
        let ended = self.child.as_mut().map(Child::try_wait);
        matches!(ended, Some(Ok(None)))
    }

    /// It ended although nobody ended it.
    pub(crate) fn died(&mut self) -> bool {
        self.child.is_some() && !self.runs()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .expect("a log file");
        let binary = std::env::var_os("RAINCHECK_BIN");
        let built = || env!("CARGO_BIN_EXE_raincheck").into();
        let mut command = Command::new(binary.unwrap_or_else(built));
        command
            .arg("run")
            .arg("--config")
            .arg(config_path(&self.folder))
            .args(["--listen", &self.address.to_string()])
            .env("XDG_STATE_HOME", &self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log);
        if let Some(upstream) = &self.upstream {
            command.args(["--upstream", upstream]);
        }
        command
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

fn config_path(folder: &Path) -> PathBuf {
    folder.join("raincheck.toml")
}

/// Below the kernel's ephemeral range: while the replica is down no outgoing connection may take its port.
pub(crate) fn free_address() -> SocketAddr {
    loop {
        let port = crate::seed::Seed::random().between(20_000, 30_000);
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap_or_default()));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
