//! The connection to each server, which the commands of a thread share, or those of all threads. No command on it blocks or is sent twice, and no
//! caller waits longer than the timeout.
//!
//! A command is sent again only after an answer which proves that the server did not execute it (another node's slot,
//! an unknown script). After any other error the command is in doubt, and the caller decides whether to repeat it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind,
    Value,
};
use tokio::time::Instant;

use super::super::error::{StoreError, StoreRefusal};
use super::address::host_and_port;
use super::connector::CONNECT_TIMEOUT;
use super::keys::slot_of;
use super::map::RedisServer;
use super::topology::Topology;
use crate::base::lock::Mutex;
use crate::net::connection_threads::PerThread;

/// After so many commands in a row without an answer their connection is dropped.
const UNANSWERED_MAX: u32 = 3;

/// Connections that reconnect by themselves. A command on its way fails at a reconnect and is in doubt.
pub(super) struct Link {
    topology: Arc<Topology>,
    timeout: Duration,
    /// `true` if all threads share the connections. Else no command waits for another thread to send it.
    is_shared: bool,
    managers: PerThread<Mutex<Vec<KeptManager>>>,
    /// Some connection left a command without an answer, and has answered none since, as far as is known.
    has_unanswered: AtomicBool,
}

/// A connection to a server, with the server's name and generation, and the time of creation.
#[derive(Debug)]
struct KeptManager {
    name: String,
    generation: u64,
    since: Instant,
    manager: ConnectionManager,
    /// The commands in a row that had no answer in time.
    unanswered: u32,
}

impl KeptManager {
    fn is_of(&self, server: &RedisServer) -> bool {
        self.generation == server.generation && self.name == server.name
    }
}

impl Link {
    /// Connects at first use. Each thread has a connection of its own to each server.
    pub(super) fn new(topology: Arc<Topology>, timeout: Duration) -> Self {
        Self {
            topology,
            timeout,
            is_shared: false,
            managers: PerThread::default(),
            has_unanswered: AtomicBool::new(false),
        }
    }

    /// All threads share one connection to each server.
    pub(super) fn shared(topology: Arc<Topology>, timeout: Duration) -> Self {
        Self {
            is_shared: true,
            ..Self::new(topology, timeout)
        }
    }

    fn managers(&self) -> &Mutex<Vec<KeptManager>> {
        if self.is_shared {
            self.managers.elsewhere()
        } else {
            self.managers.here()
        }
    }

    /// Sends a command once, to the server of the key. After a drop or a timeout the server may still execute it.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        key: &str,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        self.raw(key, command).await.map_err(fault)
    }

    /// Sends a command once, to this server. For commands without a key.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        server: &RedisServer,
        command: &Cmd,
    ) -> RedisResult<T> {
        let sent = async { command.query_async(&mut self.manager(server)?).await };
        self.in_time(sent, Some(server)).await
    }

    /// Sends commands once, to this server, with no other command between them. Each command has its own answer.
    pub(super) async fn batch(
        &self,
        server: &RedisServer,
        pipeline: &Pipeline,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let sent = async { pipeline.query_async(&mut self.manager(server)?).await };
        self.in_time(sent, Some(server)).await
    }

    async fn raw<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> RedisResult<T> {
        let slot = slot_of(key);
        let map = self.topology.map();
        // The time covers a reconnect, too.
        let sent = self.in_time(
            self.send(slot, command),
            map.server_of(slot).map(|it| &**it),
        );
        sent.await.inspect_err(|error| self.topology.doubt(error))
    }

    /// Waits for the answer of this server, as long as may be. A connection on which several commands in a row had no answer
    /// is dropped: where something on the way acknowledges what a dead server never reads, no error ends it.
    async fn in_time<T>(
        &self,
        sent: impl Future<Output = RedisResult<T>>,
        server: Option<&RedisServer>,
    ) -> RedisResult<T> {
        if let Ok(answered) = tokio::time::timeout(self.timeout, sent).await {
            // Nearly always it is false, and threads that only read it do not slow each other.
            if self.has_unanswered.load(Ordering::Relaxed) {
                self.is_answered(server);
            }
            return answered;
        }
        if let Some(server) = server
            && self.is_unanswered(server) >= UNANSWERED_MAX
        {
            self.renew(server);
        }
        Err(timed_out())
    }

    fn is_answered(&self, server: Option<&RedisServer>) {
        let mut managers = self.managers().lock();
        for kept in managers.iter_mut() {
            if server.is_some_and(|server| kept.is_of(server)) {
                kept.unanswered = 0;
            }
        }
        let none = managers.iter().all(|kept| kept.unanswered == 0);
        self.has_unanswered.store(!none, Ordering::Relaxed);
    }

    /// Returns the number of commands in a row that the connection to this server left without an answer.
    fn is_unanswered(&self, server: &RedisServer) -> u32 {
        self.has_unanswered.store(true, Ordering::Relaxed);
        let mut managers = self.managers().lock();
        let kept = managers.iter_mut().find(|kept| kept.is_of(server));
        kept.map_or(0, |kept| {
            kept.unanswered = kept.unanswered.saturating_add(1);
            kept.unanswered
        })
    }

    async fn send<T: FromRedisValue>(&self, slot: u16, command: &Cmd) -> RedisResult<T> {
        let map = self.topology.map();
        let Some(server) = map.server_of(slot) else {
            let text = "nobody holds the slot";
            return Err((ErrorKind::Server(ServerErrorKind::ClusterDown), text).into());
        };
        let answered = command.query_async(&mut self.manager(server)?).await;
        let Err(error) = answered else {
            return answered;
        };
        if is_locked_out(&error) {
            self.renew(server);
        }
        // The server did not execute the command, so sending it to the other server is safe.
        let Some(other) = self.redirected(&error, server) else {
            return Err(error);
        };
        // The command may succeed at the other server, and the map is old all the same.
        self.topology.doubt(&error);
        let mut manager = self.manager(&other)?;
        if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
            let mut pipeline = redis::pipe();
            // ASKING counts for the next command on its connection, which other commands share: both go in one piece.
            pipeline.cmd("ASKING").ignore().add_command(command.clone());
            let (answer,) = pipeline.query_async(&mut manager).await?;
            return Ok(answer);
        }
        command.query_async(&mut manager).await
    }

    /// The node that MOVED or ASK names. An address without a host means the host that was asked.
    fn redirected(&self, error: &RedisError, asked: &RedisServer) -> Option<Arc<RedisServer>> {
        let (address, _) = error.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let own = host_and_port(&asked.name, 0);
        let own = own.filter(|_| host.is_empty()).map(|(host, _)| host);
        self.topology.named(own.as_deref().unwrap_or(host), port)
    }

    /// The connection to a server. A new connection closes those to servers that are no longer in use.
    fn manager(&self, server: &RedisServer) -> RedisResult<ConnectionManager> {
        let mut managers = self.managers().lock();
        if let Some(kept) = managers.iter().find(|kept| kept.is_of(server)) {
            return Ok(kept.manager.clone());
        }
        let map = self.topology.map();
        managers.retain(|kept| map.servers.iter().any(|server| kept.is_of(server)));
        let made = manager(&server.client)?;
        managers.push(KeptManager {
            name: server.name.clone(),
            generation: server.generation,
            since: Instant::now(),
            manager: made.clone(),
            unanswered: 0,
        });
        Ok(made)
    }

    /// Drops the connection to a server that refuses our credentials, or says nothing. The library does not reconnect then, so
    /// the next command opens a new connection.
    fn renew(&self, server: &RedisServer) {
        let now = Instant::now();
        let is_new = |kept: &KeptManager| now.saturating_duration_since(kept.since) < RENEW;
        let mut managers = self.managers().lock();
        managers.retain(|kept| !kept.is_of(server) || is_new(kept));
    }

    /// Runs a script by its digest, or by its text if the server does not know the digest (first use, restart, SCRIPT
    /// FLUSH). A script with an unknown digest was not executed.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        key: &str,
        fill: impl Fn(&mut Cmd),
    ) -> Result<T, StoreError> {
        match self.raw(key, &script.by_digest(&fill)).await {
            Err(error) if is_unknown(&error) => self.query(key, &script.by_text(&fill)).await,
            answered => answered.map_err(fault),
        }
    }
}

fn manager(client: &Client) -> RedisResult<ConnectionManager> {
    // Each command has a timeout of ours already, and a timer for each of both would cost.
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(250))
        .set_number_of_retries(RECONNECTS)
        .set_pipeline_buffer_size(PIPELINE);
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// Returns `true` if the digest of a script was unknown to the server, so that the script did not run.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Returns `true` if the server refuses us: our credentials, our rights, or every client while it loads.
fn is_locked_out(error: &RedisError) -> bool {
    let codes = ["LOADING", "NOAUTH", "NOPERM", "WRONGPASS"];
    let has_code = error.code().is_some_and(|code| codes.contains(&code));
    has_code || error.kind() == ErrorKind::AuthenticationFailed
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Room for the arguments of nearly all commands that run a script, so that a command seldom grows.
const ARGUMENTS: usize = 32;
const ARGUMENT_BYTES: usize = 2048;

/// A script and its digest.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    digest: String,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            text,
            digest: redis::Script::new(text).get_hash().to_owned(),
        }
    }

    pub(super) fn by_digest(&self, fill: impl Fn(&mut Cmd)) -> Cmd {
        let mut command = Cmd::with_capacity(ARGUMENTS, ARGUMENT_BYTES);
        command.arg("EVALSHA").arg(&self.digest);
        fill(&mut command);
        command
    }

    pub(super) fn by_text(&self, fill: impl Fn(&mut Cmd)) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.text);
        fill(&mut command);
        command
    }
}

/// The port's error for an error of the library. Any error that is not surely an answer leaves the command in doubt.
pub(super) fn fault(error: RedisError) -> StoreError {
    let text = error.to_string();
    // Within a script, older servers put their code into the text.
    if error.code() == Some("OOM") || text.contains("OOM command not allowed") {
        StoreError::Full
    } else if error.code() == Some("WRONGTYPE") || text.contains("WRONGTYPE") {
        StoreError::Corrupt("a key of another type")
    } else if matches!(
        error.kind(),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType
    ) {
        StoreError::Corrupt("an answer of another shape")
    } else if error.kind() == ErrorKind::AuthenticationFailed {
        StoreError::Unavailable(refusal("WRONGPASS", &text).into())
    } else if let Some(code) = error.code() {
        // NOPERM, CLUSTERDOWN, LOADING ..
        StoreError::Unavailable(refusal(code, error.detail().unwrap_or_default()).into())
    } else {
        StoreError::Unavailable(error.into())
    }
}

fn refusal(code: &str, detail: &str) -> StoreRefusal {
    StoreRefusal {
        code: code.to_owned(),
        detail: detail.to_owned(),
    }
}

/// A refused connection is kept for this long. A new one tries [`RECONNECTS`] times.
const RENEW: Duration = Duration::from_secs(10);

/// The attempts to connect before the waiting commands fail. The next command starts new attempts.
const RECONNECTS: usize = 20;

/// The most commands that wait for the socket; further commands wait for a place.
const PIPELINE: usize = 1024;
