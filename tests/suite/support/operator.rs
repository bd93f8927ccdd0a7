//! The tools of operators: the commands, and the stream of events.

use std::process::Output;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::{Config, PATIENCE, Proxy, within};

/// With a listener for operators.
pub(crate) fn with_operators(config: Config) -> Config {
    config.section("admin", "listen = \"127.0.0.1:0\"")
}

/// Runs a command of raincheck that asks this proxy.
pub(crate) async fn raincheck(proxy: &Proxy, arguments: &[&str]) -> Output {
    command(proxy, arguments).await.output().await.unwrap()
}

/// The same by the operator with this token.
pub(crate) async fn raincheck_as(token: &str, proxy: &Proxy, arguments: &[&str]) -> Output {
    let mut command = command(proxy, arguments).await;
    command.env("RAINCHECK_ADMIN__TOKEN", token);
    command.output().await.unwrap()
}

async fn command(proxy: &Proxy, arguments: &[&str]) -> Command {
    let address = proxy.operators().await.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command.args(arguments).args(["--admin", &address]);
    command.env_clear();
    command
}

/// The stream of events, and all that came on it, the head included.
pub(crate) struct OperatorEvents {
    stream: TcpStream,
    pub(crate) seen: String,
}

impl OperatorEvents {
    pub(crate) async fn of(proxy: &Proxy) -> Self {
        let address = proxy.operators().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self {
            stream,
            seen: String::new(),
        }
    }

    /// Reads until the text is there.
    pub(crate) async fn until(&mut self, text: &str) {
        self.until_times(1, text).await;
    }

    /// The same, so many times.
    pub(crate) async fn until_times(&mut self, times: usize, text: &str) {
        let mut piece = [0; 4096];
        while self.seen.matches(text).count() < times {
            let reading = self.stream.read(&mut piece);
            let read = within(PATIENCE, text, reading).await.unwrap();
            assert!(read > 0, "it ended before {text}: {}", self.seen);
            self.seen += str::from_utf8(&piece[..read]).unwrap();
        }
    }
}
