//! Redis as people run it: an append-only file, synced every second. Killed, frozen, emptied, cut.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::process;
use crate::eventually::eventually;

/// A server on a socket in a folder of its own. Gone when dropped.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Option<Child>,
    folder: PathBuf,
    /// The calls a second that an idle service may cost it.
    pub(crate) idle_calls_max: u64,
}

impl Redis {
    /// Below `folder`, which should be in memory: with a slow disk, while an earlier sync of the file is under way, Redis
    /// acknowledges writes that it has not given to the system yet, and a kill loses them.
    pub(crate) async fn start(folder: &Path) -> Self {
        let folder = folder.join("redis");
        std::fs::create_dir(&folder).expect("a folder for Redis");
        let mut server = Self {
            child: None,
            folder,
            idle_calls_max: 5,
        };
        server.restart().await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}?db=0", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("s")
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill(&mut child);
        }
    }

    /// Starts it on what its file holds, and waits until it has read it.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.socket());
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "everysec", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server must be installed");
        self.child = Some(child);
        let answers = async || self.try_ask::<String>(&["PING"]).await;
        eventually(Duration::from_secs(15), "redis-server answers", answers).await;
    }

    pub(crate) fn freeze(&self) {
        process::signal(self.child.as_ref(), "STOP");
    }

    pub(crate) fn thaw(&self) {
        process::signal(self.child.as_ref(), "CONT");
    }

    /// Takes the last bytes off the append-only file, as a loss of power does.
    pub(crate) fn cut_tail(&self, bytes: u64) {
        let folder = self.folder.join("appendonlydir");
        let files = std::fs::read_dir(folder).expect("the append-only folder");
        let increment = files
            .filter_map(Result::ok)
            .map(|file| file.path())
            .find(|path| path.to_string_lossy().ends_with(".incr.aof"));
        let file = std::fs::File::options()
            .write(true)
            .open(increment.expect("the append-only file"))
            .expect("the append-only file");
        let length = file.metadata().expect("its length").len();
        file.set_len(length.saturating_sub(bytes)).expect("the cut");
    }

    async fn connect(&self) -> Result<MultiplexedConnection, redis::RedisError> {
        let client = redis::Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
    }

    async fn try_ask<T: redis::FromRedisValue>(
        &self,
        words: &[&str],
    ) -> Result<T, redis::RedisError> {
        let mut connection = self.connect().await?;
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query_async(&mut connection).await
    }

    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = self.try_ask(words).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The number behind a name in `INFO`.
    pub(crate) async fn info(&self, section: &str, name: &str) -> u64 {
        let text: String = self.ask(&["INFO", section]).await;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or_default()
    }

    /// The calls of all commands so far.
    pub(crate) async fn calls(&self) -> u64 {
        let text: String = self.ask(&["INFO", "commandstats"]).await;
        let calls = text.lines().filter_map(|line| {
            let (_, rest) = line.split_once("calls=")?;
            rest.split(',').next()?.parse::<u64>().ok()
        });
        calls.sum()
    }

    /// Keys without an expiry.
    pub(crate) async fn eternal(&self) -> Vec<String> {
        let mut connection = self.connect().await.expect("Redis");
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
        for chunk in std::mem::take(&mut keys).chunks(1000) {
            let mut pipe = redis::pipe();
            for key in chunk {
                pipe.cmd("PTTL").arg(key);
            }
            let left: Vec<i64> = pipe.query_async(&mut connection).await.expect("PTTL");
            let eternal = chunk.iter().zip(left).filter(|(_, left)| *left == -1);
            keys.extend(eternal.map(|(key, _)| key.clone()));
        }
        keys
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
