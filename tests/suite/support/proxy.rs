//! The built binary: configured, started, stopped, killed.

use std::fmt::Write as _;
use std::future::ready;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use tokio::net::TcpStream;

use super::{PATIENCE, TempDir, eventually, try_eventually};
use crate::ports::ReservedPort;

/// The configuration of the proxy. The suite's defaults are short poll intervals, every call a task, and the
/// memory store.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    tasks: String,
    tools: String,
    rest: String,
    kept: String,
    store: Store,
    environment: Vec<(String, String)>,
    poll_hold: String,
    /// Whether standard error is a pipe, which a test reads or not.
    is_log_piped: bool,
    /// The command that runs raincheck, where another process does.
    below: Vec<String>,
    /// Where the first process crashes, see `src/base/failpoint.rs`.
    pub(crate) crash: Option<String>,
}

#[derive(Debug, Clone)]
enum Store {
    Memory,
    /// A file in the proxy's own directory.
    Embedded,
    Redis(String),
}

impl Config {
    pub(crate) fn always() -> Self {
        Self::mode("always")
    }

    /// The mode `auto` with this grace window.
    pub(crate) fn auto(grace_window: &str) -> Self {
        Self::mode("auto").terms(&format!("grace_window = {grace_window:?}"))
    }

    /// Every call is a task, and clients are told to poll as raincheck learns.
    pub(crate) fn learning() -> Self {
        let mut config = Self::always();
        "mode = \"always\"\n".clone_into(&mut config.tasks);
        config
    }

    pub(crate) fn never() -> Self {
        Self::mode("never")
    }

    fn mode(mode: &str) -> Self {
        let config = Self {
            tasks: String::new(),
            tools: String::new(),
            rest: String::new(),
            kept: String::new(),
            store: Store::Memory,
            environment: Vec::new(),
            poll_hold: "200ms".to_owned(),
            is_log_piped: false,
            below: Vec::new(),
            crash: None,
        };
        config.terms(&format!("mode = {mode:?}\npoll_interval = \"50ms\""))
    }

    /// Lines for the section `tasks`.
    pub(crate) fn terms(mut self, lines: &str) -> Self {
        writeln!(self.tasks, "{lines}").unwrap();
        self
    }

    /// How long polls without news are held: in most tests a moment only, because they ask again by themselves.
    pub(crate) fn poll_hold(mut self, hold: &str) -> Self {
        hold.clone_into(&mut self.poll_hold);
        self
    }

    /// A rule for one tool.
    pub(crate) fn tool(mut self, name: &str, lines: &str) -> Self {
        writeln!(self.tools, "[[tools]]\nname = {name:?}\n{lines}").unwrap();
        self
    }

    /// A whole section.
    pub(crate) fn section(mut self, name: &str, lines: &str) -> Self {
        writeln!(self.rest, "[{name}]\n{lines}").unwrap();
        self
    }

    /// A variable of the process's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn http2(self) -> Self {
        self.section("listen", "h2c = true")
    }

    /// With a probe listener, on a port that the system chooses, and more lines of its section.
    pub(crate) fn probed(self, lines: &str) -> Self {
        self.section("admin", &format!("probes = \"127.0.0.1:0\"\n{lines}"))
    }

    /// The log goes into a pipe: [`Proxy::pipe`].
    pub(crate) fn log_piped(mut self) -> Self {
        self.is_log_piped = true;
        self
    }

    /// Run by this command, which raincheck's own follows.
    pub(crate) fn below(mut self, command: &[&str]) -> Self {
        self.below = command.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub(crate) fn embedded(mut self) -> Self {
        self.store = Store::Embedded;
        self
    }

    pub(crate) fn redis(mut self, url: &str) -> Self {
        self.store = Store::Redis(url.to_owned());
        self
    }

    /// Lines for the section `store`.
    pub(crate) fn store(mut self, lines: &str) -> Self {
        writeln!(self.kept, "{lines}").unwrap();
        self
    }

    /// In front of the scripted program, in this mode.
    pub(crate) async fn run(self, mode: &str) -> Proxy {
        self.run_with(mode, "").await
    }

    /// The same, with further lines for the section `upstream`.
    pub(crate) async fn run_with(self, mode: &str, lines: &str) -> Proxy {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
        let command = format!("command = [\"python3\", {script:?}, {mode:?}]\n{lines}");
        self.section("upstream", &command).start("").await
    }

    pub(crate) fn text(&self) -> String {
        let namespace = match &self.store {
            Store::Memory | Store::Embedded => "",
            Store::Redis(_) => "namespace = \"suite\"\n",
        };
        format!(
            "[store]\n{namespace}{}[tasks]\npoll_hold = {:?}\n{}{}{}",
            self.kept, self.poll_hold, self.tasks, self.rest, self.tools
        )
    }

    pub(crate) async fn start(mut self, upstream: &str) -> Proxy {
        let directory = TempDir::new();
        directory.file("raincheck.toml", &self.text());
        let port = ReservedPort::new();
        let child = spawn(&directory, &self, upstream, port.address()).await;
        self.crash = None;
        Proxy {
            config: self,
            upstream: upstream.to_owned(),
            directory,
            ports: vec![port],
            child: Some(child),
        }
    }
}

/// A running proxy; killed when dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) config: Config,
    pub(crate) upstream: String,
    pub(crate) directory: TempDir,
    /// One for each process so far. The port of a process that has ended stays reserved, so that no other test's server answers
    /// this test's clients.
    ports: Vec<ReservedPort>,
    pub(crate) child: Option<Running>,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Proxy {
    pub(crate) fn address(&self) -> SocketAddr {
        self.child.as_ref().expect("the proxy runs").address
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut running = self.child.take().expect("the proxy runs");
        running.child.kill().unwrap();
        running.child.wait().unwrap();
    }

    /// Sends SIGSTOP: connections stay open, and the proxy does not answer.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.signal("-HUP");
    }

    /// Waits until the log has this text this many times.
    pub(crate) async fn until_said(&self, text: &str, times: usize) {
        let what = format!("the log says {times} times: {text}");
        eventually(PATIENCE, &what, async || {
            let log = self.log();
            let said = log.matches(text).count() >= times;
            if said { Ok(()) } else { Err(log) }
        })
        .await;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the proxy runs").child.id()
    }

    fn signal(&self, signal: &str) {
        let running = self.child.as_ref().expect("the proxy runs");
        let pid = running.child.id().to_string();
        let sent = Command::new("kill").arg(signal).arg(pid).status().unwrap();
        assert!(sent.success(), "kill {signal}");
    }

    /// Where probes are answered.
    pub(crate) async fn probes(&self) -> SocketAddr {
        self.said("answering probes address=").await
    }

    /// The address that the log has after these words.
    async fn said(&self, words: &str) -> SocketAddr {
        eventually(PATIENCE, words, async || {
            let log = self.log();
            let as_json = words.replace(" address=", "\",\"address\":\"");
            // The last one: the process may be the next one in the same folder.
            let said = log.rsplit_once(words).or_else(|| log.rsplit_once(&as_json));
            match said.and_then(|(_, rest)| rest.split_once(['\n', '"'])) {
                Some((address, _)) => Ok(address.trim().parse().unwrap()),
                None => Err(log),
            }
        })
        .await
    }

    /// Where operators are answered.
    pub(crate) async fn operators(&self) -> SocketAddr {
        self.said("answering operators address=").await
    }

    /// SIGTERM, and the end of the process.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.terminate();
        self.ended().await
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let running = self.child.as_ref().expect("the proxy runs");
        let pid = running.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        let running = self.child.as_mut().expect("the proxy runs");
        running.child.try_wait().unwrap().is_none()
    }

    /// The end of a process that was told to stop, or to crash.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut running = self.child.take().expect("the proxy runs");
        let ended = || ready(running.child.try_wait().unwrap());
        let ended = try_eventually(PATIENCE * 2, ended).await;
        ended.unwrap_or_else(|_runs| {
            running.child.kill().unwrap();
            panic!("the proxy did not end\n{}", self.log());
        })
    }

    /// Starts it again over the same store, at another port.
    pub(crate) async fn restart(&mut self) {
        assert!(self.child.is_none(), "the proxy still runs");
        let port = ReservedPort::new();
        let address = port.address();
        self.ports.push(port);
        self.child = Some(spawn(&self.directory, &self.config, &self.upstream, address).await);
    }

    /// The log of [`Config::log_piped`]. Nobody else reads it.
    pub(crate) fn pipe(&mut self) -> ChildStderr {
        let running = self.child.as_mut().expect("the proxy runs");
        running.child.stderr.take().expect("the log is a pipe")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(log_file(&self.directory)).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = &mut self.child {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        if std::thread::panicking() {
            println!("--- the proxy said ---\n{}", self.log());
        }
    }
}

fn log_file(directory: &TempDir) -> PathBuf {
    directory.path().join("log")
}

/// Waits until the address accepts no new connection.
pub(crate) async fn until_closed(address: SocketAddr) {
    let refused = async || TcpStream::connect(address).await.is_err();
    eventually(PATIENCE, "the listener is closed", refused).await;
}

/// Starts the process and waits until it listens.
async fn spawn(
    directory: &TempDir,
    config: &Config,
    upstream: &str,
    address: SocketAddr,
) -> Running {
    let log = || std::fs::read_to_string(log_file(directory)).unwrap_or_default();
    let child = command(directory, config, upstream, address)
        .spawn()
        .unwrap();
    let mut running = Running { child, address };
    let listens = || {
        let ended = running.child.try_wait().unwrap();
        assert!(ended.is_none(), "the proxy did not start\n{}", log());
        async move {
            let connected = TcpStream::connect(address).await;
            connected.map(drop).map_err(|_| log())
        }
    };
    eventually(PATIENCE, "the proxy listens", listens).await;
    running
}

pub(crate) fn command(
    directory: &TempDir,
    config: &Config,
    upstream: &str,
    address: SocketAddr,
) -> Command {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(log_file(directory))
        .unwrap();
    let store = match &config.store {
        Store::Memory => "memory:".to_owned(),
        Store::Embedded => format!("redb:{}", directory.path().join("tasks.redb").display()),
        Store::Redis(url) => url.clone(),
    };
    let program = env!("CARGO_BIN_EXE_raincheck").to_owned();
    let mut words = config.below.iter().chain([&program]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).arg("run");
    if !upstream.is_empty() {
        command.args(["--upstream", upstream]);
    }
    command
        .arg("--config")
        .arg(directory.path().join("raincheck.toml"))
        .args(["--store", &store])
        .args(["--listen", &address.to_string()])
        .env("XDG_STATE_HOME", directory.path())
        .envs(config.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    if config.is_log_piped {
        command.stderr(Stdio::piped());
    }
    if let Some(crash) = &config.crash {
        command.env("RAINCHECK_CRASH", crash);
    }
    command
}
