//! Follows the change log on one server, on its own connection, because a blocking read holds up all commands behind
//! it.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisResult, Value};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tracing::warn;

use super::super::ChangeEvent;
use super::connector::CONNECT_TIMEOUT;
use super::link::fault;
use super::log::{self, COUNT, Edge, LogPosition};
use super::topology::Topology;
use crate::base::backoff::Backoff;
use crate::telemetry::repeats::{OF_OUTAGE, has_room};

/// The follower of the log of the only bucket.
pub(super) struct Follower {
    pub(super) topology: Arc<Topology>,
    pub(super) log: String,
    /// The last entry seen.
    pub(super) last: LogPosition,
    pub(super) changes: broadcast::Sender<ChangeEvent>,
}

impl Follower {
    /// Runs as long as it is polled. After a reconnect it continues at the last entry seen; if entries are gone, it
    /// publishes [`ChangeEvent::Missed`]. May be dropped at any point, because seen entries are published at once.
    pub(super) async fn run(mut self) {
        let mut pauses = PAUSES;
        let (mut failures, mut is_told) = (0_u32, false);
        loop {
            let started = Instant::now();
            let mut elsewhere = self.topology.watch();
            // The present map is marked as seen, so that only a later one ends the follower below.
            let map = Arc::clone(&elsewhere.borrow_and_update());
            tokio::select! {
                ended = self.follow(map.servers.first().map(|server| &server.client)) => {
                    let lasted = Instant::now().saturating_duration_since(started);
                    // A connection that lasted longer than one read has worked, so earlier failures no longer count.
                    if lasted > BLOCK {
                        (failures, is_told) = (0, false);
                    }
                    if let Err(error) = ended {
                        failures += 1;
                        // A refusal lasts longer than a broken connection, which may come back at once.
                        if error.code().is_some() {
                            pauses.lengthen();
                        }
                        // A broken connection is logged if it does not come back; a refusal by Redis is logged
                        // at once.
                        let is_news = failures >= BROKEN_TOLD || error.code().is_some();
                        if is_news && !is_told && has_room(OF_OUTAGE) {
                            is_told = true;
                            let error = fault(error);
                            warn!(name: OF_OUTAGE, %error, "the change log cannot be read; trying again");
                        }
                    }
                }
                Ok(()) = elsewhere.changed() => {}
            }
            let lasted = Instant::now().saturating_duration_since(started);
            if lasted > BLOCK {
                pauses.reset();
            }
            tokio::time::sleep(pauses.spread_pause()).await;
        }
    }

    async fn follow(&mut self, client: Option<&Client>) -> RedisResult<()> {
        let Some(client) = client else { return Ok(()) };
        // The server holds a read for `BLOCK`, so an answer may take that long without anything being wrong.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(BLOCK + CONNECT_TIMEOUT));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        // The log may have been trimmed or lost while there was no connection.
        self.check(&mut connection, self.last).await?;
        let mut checked = Instant::now();
        loop {
            let before = self.last;
            let read = self.read(&mut connection).await?;
            // After a full answer, check: the log may have been trimmed past us. After an empty answer, check now and
            // then: the log may have been lost and begun anew.
            let now = Instant::now();
            let stale = read == 0 && now.saturating_duration_since(checked) >= CHECK;
            if read >= COUNT || stale {
                self.check(&mut connection, before).await?;
                checked = now;
            }
            // After a full answer more entries wait already, so the follower reads on at once.
            if (MANY..COUNT).contains(&read) {
                tokio::time::sleep(GATHERING).await;
            }
        }
    }

    /// Waits for entries after the last entry seen, and publishes them.
    async fn read(&mut self, connection: &mut MultiplexedConnection) -> RedisResult<usize> {
        let reply: Value = redis::cmd("XREAD")
            .arg("COUNT")
            .arg(COUNT)
            .arg("BLOCK")
            .arg(u64::try_from(BLOCK.as_millis()).unwrap_or(u64::MAX))
            .arg("STREAMS")
            .arg(&self.log)
            .arg(self.last.to_string())
            .query_async(connection)
            .await?;
        let Some((seen, last)) = log::entries(&reply, self.last) else {
            let text = "an answer of another shape";
            return Err((ErrorKind::UnexpectedReturnType, text).into());
        };
        self.last = last;
        let count = seen.len();
        for seen in seen {
            self.publish(seen);
        }
        Ok(count)
    }

    /// Notifies followers if entries after `seen` are no longer there.
    async fn check(
        &mut self,
        connection: &mut MultiplexedConnection,
        seen: LogPosition,
    ) -> RedisResult<()> {
        let mut ends = [None; 2];
        for (end, edge) in ends.iter_mut().zip([Edge::First, Edge::Last]) {
            let reply: StreamRangeReply =
                log::edge(&self.log, edge).query_async(connection).await?;
            *end = log::position(&reply);
        }
        let [first, end] = ends;
        let gap = log::check_gap(first.zip(end), seen, self.last);
        self.last = gap.from;
        if gap.missed {
            self.publish(ChangeEvent::Missed);
        }
        Ok(())
    }

    fn publish(&self, seen: ChangeEvent) {
        // The send fails only if there is no follower, and then the change is not needed.
        let _ = self.changes.send(seen);
    }
}

/// The time that one read waits. An idle follower costs one command in this time.
const BLOCK: Duration = Duration::from_secs(10);

/// The number of entries in an answer from which on entries count as coming fast.
const MANY: usize = 4;

/// The time that entries that come fast gather. A read costs Redis and this process more than several entries
/// do, and a client does not notice the time.
const GATHERING: Duration = Duration::from_millis(2);

/// The time between two checks whether an idle log is still the same log.
const CHECK: Duration = Duration::from_mins(1);

/// The number of broken connections in a row after which the follower logs it.
const BROKEN_TOLD: u32 = 3;

/// The pauses before the log is read again after the connection broke.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
