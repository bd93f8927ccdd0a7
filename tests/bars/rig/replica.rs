//! One replica of the built program: started, killed, frozen, stopped.

use std::future::ready;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

use super::memory_limit::MemoryLimit;
use super::process;
use crate::client::Client;
use crate::eventually::{eventually, try_eventually};
use crate::ports::ReservedPort;

/// Starts and ends are waited for so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A replica. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Replica {
    child: Option<Child>,
    folder: PathBuf,
    /// Without one, the configuration says what is wrapped.
    upstream: Option<String>,
    port: ReservedPort,
    /// Each of its processes writes its id here before it begins.
    processes: Option<PathBuf>,
    program: PathBuf,
}

/// The program that the bars are about: the one that `RAINCHECK_BIN` names, else the one built with them.
pub(crate) fn program() -> PathBuf {
    let named = std::env::var_os("RAINCHECK_BIN");
    named.map_or_else(|| env!("CARGO_BIN_EXE_raincheck").into(), PathBuf::from)
}

impl Replica {
    /// Starts a replica by this configuration, at an address that it keeps over restarts.
    pub(crate) async fn start(folder: PathBuf, config: &str, upstream: &str) -> Self {
        Self::start_by(folder, config, Some(upstream)).await
    }

    pub(crate) async fn start_by(folder: PathBuf, config: &str, upstream: Option<&str>) -> Self {
        Self::start_within(folder, config, upstream, None).await
    }

    pub(crate) async fn start_within(
        folder: PathBuf,
        config: &str,
        upstream: Option<&str>,
        limit: Option<&MemoryLimit>,
    ) -> Self {
        std::fs::create_dir(&folder).expect("a folder for a replica");
        std::fs::write(folder.join("raincheck.toml"), config).expect("its configuration");
        let mut replica = Self {
            child: None,
            folder,
            upstream: upstream.map(ToOwned::to_owned),
            port: ReservedPort::new(),
            processes: limit.map(MemoryLimit::processes),
            program: program(),
        };
        replica.restart().await;
        replica
    }

    pub(crate) fn client(&self) -> Client {
        Client::of(self.address())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
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

    /// The program that the next restart starts.
    pub(crate) fn set_program(&mut self, program: PathBuf) {
        self.program = program;
    }

    /// Starts it, and waits until it takes connections.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.child = Some(self.command().spawn().expect("the built program"));
        eventually(PATIENCE, "a replica listens", || {
            let (runs, log, address) = (self.runs(), self.log(), self.address());
            assert!(runs, "a replica did not start\n{log}");
            async move { TcpStream::connect(address).await.map_err(|_| log) }
        })
        .await;
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
        let ended = || {
            let child = self.child.as_mut();
            ready(child.and_then(|child| child.try_wait().ok()?))
        };
        let ended = try_eventually(patience, ended).await.ok();
        match ended {
            Some(_) => self.child = None,
            None => self.kill(),
        }
        ended
    }

    fn runs(&mut self) -> bool {
        let ended = self.child.as_mut().map(Child::try_wait);
        matches!(ended, Some(Ok(None)))
    }

    /// The process ended although the test did not end it.
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
        let mut command = match &self.processes {
            None => Command::new(&self.program),
            Some(processes) => {
                // The shell becomes the program, so that its id stays the same and all that the program does counts.
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", r#"echo $$ >"$0" && exec "$@""#]);
                shell.arg(processes).arg(&self.program);
                shell
            }
        };
        command
            .arg("run")
            .arg("--config")
            .arg(config_path(&self.folder))
            .args(["--listen", &self.address().to_string()])
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
