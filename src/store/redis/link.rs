//! One connection to each server that everybody shares: nothing on it blocks, nothing on it is sent
//! twice, and nobody waits longer than the timeout.
//!
//! Only an answer that says that nothing was executed (another node's slot, an unknown script) is
//! followed by another sending. Everything else is in doubt, and the caller's to repeat.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind,
    Value,
};
use tokio::time::Instant;

use super::super::error::{StoreError, StoreRefusal};
use super::address::host_and_port;
use super::keys::slot_of;
use super::map::Server;
use super::reach::CONNECT_TIMEOUT;
use super::topology::Topology;
use crate::lock::Mutex;

/// Reconnects by itself; a command that was under way then fails and is in doubt.
pub(super) struct Link {
    topology: Arc<Topology>,
    timeout: Duration,
    /// By the name and generation of the server, and since when.
    managers: Mutex<HashMap<(String, u64), (ConnectionManager, Instant)>>,
}

impl Link {
    /// Connects at first use.
    pub(super) fn new(topology: Arc<Topology>, timeout: Duration) -> Self {
        Self {
            topology,
            timeout,
            managers: Mutex::new(HashMap::new()),
        }
    }

    /// Sends once, to whom the key belongs. Dropped or timed out, the command may still be
    /// executed later.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        key: &str,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        self.raw(key, command).await.map_err(fault)
    }

    /// Sends once, to this server: for what belongs to no key.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        server: &Server,
        command: &Cmd,
    ) -> RedisResult<T> {
        let sent = async { command.query_async(&mut self.manager(server)?).await };
        let sent = tokio::time::timeout(self.timeout, sent).await;
        sent.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Sends once, all to this server and nothing in between; each command has its own answer.
    pub(super) async fn batch(
        &self,
        server: &Server,
        pipeline: &Pipeline,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let sent = async { pipeline.query_async(&mut self.manager(server)?).await };
        let sent = tokio::time::timeout(self.timeout, sent).await;
        sent.unwrap_or_else(|_| Err(timed_out()))
    }

    async fn raw<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> RedisResult<T> {
        // The manager's own timeout counts from sending; this one also covers a reconnect.
        let sent = tokio::time::timeout(self.timeout, self.send(slot_of(key), command)).await;
        let answered = sent.unwrap_or_else(|_| Err(timed_out()));
        answered.inspect_err(|error| self.topology.doubt(error))
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
        // Not executed there: the one other case in which sending again is sure to be the first.
        let Some(other) = self.redirected(&error, server) else {
            return Err(error);
        };
        self.topology.doubt(&error);
        let mut manager = self.manager(&other)?;
        if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
            let mut pipeline = redis::pipe();
            pipeline.cmd("ASKING").ignore().add_command(command.clone());
            let (answer,) = pipeline.query_async(&mut manager).await?;
            return Ok(answer);
        }
        command.query_async(&mut manager).await
    }

    /// The node that MOVED or ASK names; one without a host has the host that was asked.
    fn redirected(&self, error: &RedisError, asked: &Server) -> Option<Arc<Server>> {
        let (address, _) = error.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let own = host_and_port(&asked.name, 0);
        let own = own.filter(|_| host.is_empty()).map(|(host, _)| host);
        self.topology.named(own.as_deref().unwrap_or(host), port)
    }

    /// Connections to servers that are no longer in use are closed here, when a new one is made.
    fn manager(&self, server: &Server) -> RedisResult<ConnectionManager> {
        let mut managers = self.managers.lock();
        let key = (server.name.clone(), server.generation);
        if let Some((manager, _)) = managers.get(&key) {
            return Ok(manager.clone());
        }
        let map = self.topology.map();
        managers.retain(|(name, generation), _| {
            let used =
                |server: &Arc<Server>| server.name == *name && server.generation == *generation;
            map.servers.iter().any(used)
        });
        let made = manager(&server.client, self.timeout)?;
        managers.insert(key, (made.clone(), Instant::now()));
        Ok(made)
    }

    /// A manager whose server took its credentials for wrong, or let it do nothing, does not connect
    /// again by itself: another one does, a little later.
    fn renew(&self, server: &Server) {
        let mut managers = self.managers.lock();
        let now = Instant::now();
        managers.retain(|(name, generation), (_, since)| {
            let is_it = *name == server.name && *generation == server.generation;
            !is_it || now.saturating_duration_since(*since) < RENEW
        });
    }

    /// By its digest, and with its text where the server does not know it (first use, restart,
    /// SCRIPT FLUSH): a digest that was not known was not executed.
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

fn manager(client: &Client, timeout: Duration) -> RedisResult<ConnectionManager> {
    // Both timeouts are set by hand: the library's defaults are not ours to rely on.
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(timeout))
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(250))
        .set_number_of_retries(RECONNECTS)
        .set_pipeline_buffer_size(PIPELINE);
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// The server does not know the script by its digest, and so did not run it.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// What a server says to whom it does not know, or does not serve.
fn is_locked_out(error: &RedisError) -> bool {
    let codes = ["LOADING", "NOAUTH", "NOPERM", "WRONGPASS"];
    let has_code = error.code().is_some_and(|code| codes.contains(&code));
    has_code || error.kind() == ErrorKind::AuthenticationFailed
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

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
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest);
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

/// What an error of the library means to the port. What is not surely an answer is in doubt.
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

/// So long a connection is kept that is refused. A new one asks [`RECONNECTS`] times to be let in.
const RENEW: Duration = Duration::from_secs(10);

/// Attempts before the waiting commands are told; the next command starts them again.
const RECONNECTS: usize = 20;

/// Commands that wait for the socket; more wait for a place.
const PIPELINE: usize = 1024;
