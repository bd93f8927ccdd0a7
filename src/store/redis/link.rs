//! One connection that everybody shares: nothing on it blocks, nothing on it is sent twice, and
//! nobody waits longer than the timeout.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};
use tokio::sync::watch;

use super::super::StoreError;

/// Reconnects by itself; a command that was under way then fails and is in doubt.
pub(super) struct Link {
    client: Client,
    timeout: Duration,
    current: Mutex<Current>,
    /// Counts the primaries that were left: whoever holds a connection of its own leaves too.
    left: watch::Sender<u64>,
}

struct Current {
    manager: ConnectionManager,
    since: Instant,
}

impl Link {
    /// Connects at first use.
    pub(super) fn new(client: Client, timeout: Duration) -> RedisResult<Self> {
        let manager = manager(&client, timeout)?;
        let current = Mutex::new(Current {
            manager,
            since: Instant::now(),
        });
        Ok(Self {
            client,
            timeout,
            current,
            left: watch::Sender::new(0),
        })
    }

    /// Sends once. Dropped or timed out, the command may still be executed later.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.raw(command).await.map_err(fault)
    }

    pub(super) fn left(&self) -> watch::Receiver<u64> {
        self.left.subscribe()
    }

    async fn raw<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut manager = self
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .manager
            .clone();
        // The manager's own timeout counts from sending; this one also covers a reconnect.
        match tokio::time::timeout(self.timeout, command.query_async(&mut manager)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) => {
                self.leave()?;
                Err(error)
            }
            Ok(answered) => answered,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// After a failover the old primary answers, but is a replica now: only a new connection asks
    /// the name again and finds the new one. Not more often than [`LEAVE_PAUSE`], or every command
    /// of an undecided failover would connect.
    fn leave(&self) -> RedisResult<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now().saturating_duration_since(current.since) >= LEAVE_PAUSE {
            let manager = manager(&self.client, self.timeout)?;
            *current = Current {
                manager,
                since: Instant::now(),
            };
            self.left
                .send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok(())
    }

    /// By its digest, and with its text where the server does not know it (first use, restart,
    /// SCRIPT FLUSH): a digest that was not known was not executed.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<T, StoreError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.digest);
        fill(&mut command);
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        match self.raw(&command).await {
            Err(error) if error.kind() == unknown => {
                let mut command = redis::cmd("EVAL");
                command.arg(script.text);
                fill(&mut command);
                self.query(&command).await
            }
            answered => answered.map_err(fault),
        }
    }
}

fn manager(client: &Client, timeout: Duration) -> RedisResult<ConnectionManager> {
    // Both timeouts are set by hand: the library's defaults are not ours to rely on.
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(timeout))
        .set_connection_timeout(Some(super::CONNECT_TIMEOUT))
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(250))
        .set_number_of_retries(RECONNECTS)
        .set_pipeline_buffer_size(PIPELINE);
    ConnectionManager::new_lazy_with_config(client.clone(), config)
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
    } else {
        StoreError::Unavailable(error.into())
    }
}

/// Between two departures from a primary that is none.
const LEAVE_PAUSE: Duration = Duration::from_secs(1);

/// Attempts before the waiting commands are told; the next command starts them again.
const RECONNECTS: usize = 20;

/// Commands that wait for the socket; more wait for a place.
const PIPELINE: usize = 1024;
