//! Follows the change log: one task on a connection of its own, because a blocking read holds up
//! everything behind it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::streams::{StreamId, StreamRangeReply, StreamReadReply};
use redis::{AsyncConnectionConfig, Client, RedisResult, from_redis_value_ref};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::super::{Change, LOG_LENGTH, Seen};
use crate::task::id::{Revision, TaskId};

/// Where the follower is in the log of one bucket.
pub(super) struct Follower {
    pub(super) client: Client,
    pub(super) log: String,
    /// The last entry seen.
    pub(super) last: Position,
    pub(super) changes: broadcast::Sender<Seen>,
    /// Changes when the server was found to be the primary no more.
    pub(super) left: watch::Receiver<u64>,
}

/// The id of a log entry: milliseconds and a count within them, in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position(u64, u64);

impl Follower {
    /// Until it is stopped. Nothing between the last entry seen and now is lost over a reconnect,
    /// or else followers are told that they missed something.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let work = async {
            let mut pause = FIRST_PAUSE;
            loop {
                let started = tokio::time::Instant::now();
                let mut left = self.left.clone();
                left.mark_unchanged();
                tokio::select! {
                    ended = self.follow() => if let Err(error) = ended {
                        warn!(%error, "the change log cannot be read; trying again");
                    },
                    Ok(()) = left.changed() => {}
                }
                let lasted = tokio::time::Instant::now().saturating_duration_since(started);
                pause = if lasted > BLOCK {
                    FIRST_PAUSE
                } else {
                    LAST_PAUSE.min(pause * 2)
                };
                tokio::time::sleep(pause).await;
            }
        };
        // Everything in there may be dropped at any point: what was seen is published already.
        stop.run_until_cancelled(work).await;
    }

    async fn follow(&mut self) -> RedisResult<()> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(super::CONNECT_TIMEOUT))
            .set_response_timeout(Some(BLOCK + super::CONNECT_TIMEOUT));
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        self.check(&mut connection, self.last).await?;
        loop {
            let before = self.last;
            let read = self.read(&mut connection).await?;
            // Less than a full answer cannot hide a gap, because the log is longer than that. Full
            // or empty, look: it may have been trimmed past us, or begun anew.
            if read == 0 || read >= COUNT {
                self.check(&mut connection, before).await?;
            }
        }
    }

    /// Publishes what was logged after the last entry seen, waiting for something a while.
    async fn read(&mut self, connection: &mut MultiplexedConnection) -> RedisResult<usize> {
        let reply: Option<StreamReadReply> = redis::cmd("XREAD")
            .arg("COUNT")
            .arg(COUNT)
            .arg("BLOCK")
            .arg(u64::try_from(BLOCK.as_millis()).unwrap_or(u64::MAX))
            .arg("STREAMS")
            .arg(&self.log)
            .arg(self.last.to_string())
            .query_async(connection)
            .await?;
        let entries = reply
            .into_iter()
            .flat_map(|reply| reply.keys)
            .flat_map(|key| key.ids);
        let mut count = 0;
        for entry in entries {
            count += 1;
            self.last = Position::parse(&entry.id).unwrap_or(self.last);
            // An entry that is not ours says that something changed, not what.
            self.publish(change(&entry).map_or(Seen::Missed, Seen::Changed));
        }
        Ok(count)
    }

    /// Tells followers if entries after `seen` are no longer there.
    async fn check(
        &mut self,
        connection: &mut MultiplexedConnection,
        seen: Position,
    ) -> RedisResult<()> {
        let first = edge(connection, &self.log, Edge::First).await?;
        let last = edge(connection, &self.log, Edge::Last).await?;
        let (Some(first), Some(last)) = (first, last) else {
            // Nothing was ever logged, or the log was lost with everything in it.
            if seen != Position::default() {
                self.publish(Seen::Missed);
                self.last = Position::default();
            }
            return Ok(());
        };
        if last < self.last {
            // A store that went back: its new entries may have smaller ids than ours.
            self.publish(Seen::Missed);
            self.last = last;
        } else if seen < first && seen != Position::default() {
            self.publish(Seen::Missed);
        }
        Ok(())
    }

    fn publish(&self, seen: Seen) {
        // Nobody follows: nobody misses it.
        let _ = self.changes.send(seen);
    }
}

#[derive(Clone, Copy)]
pub(super) enum Edge {
    First,
    Last,
}

/// The first or last entry that is still in the log.
pub(super) async fn edge(
    connection: &mut MultiplexedConnection,
    log: &str,
    edge: Edge,
) -> RedisResult<Option<Position>> {
    let (command, from, to) = match edge {
        Edge::First => ("XRANGE", "-", "+"),
        Edge::Last => ("XREVRANGE", "+", "-"),
    };
    let mut command = redis::cmd(command);
    command.arg(log).arg(from).arg(to).arg("COUNT").arg(1);
    let reply: StreamRangeReply = command.query_async(connection).await?;
    Ok(reply
        .ids
        .first()
        .and_then(|entry| Position::parse(&entry.id)))
}

impl Position {
    fn parse(text: &str) -> Option<Self> {
        let (ms, count) = text.split_once('-')?;
        Some(Self(ms.parse().ok()?, count.parse().ok()?))
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

fn change(entry: &StreamId) -> Option<Change> {
    let field = |name| from_redis_value_ref::<String>(entry.map.get(name)?).ok();
    Some(Change {
        id: TaskId::parse(&field("i")?)?,
        revision: Revision(field("r")?.parse().ok()?),
    })
}

/// How long one read waits: the pause between two looks at an idle store.
const BLOCK: Duration = Duration::from_secs(2);

/// Entries in one answer; well below the length of the log, see [`Follower::follow`].
const COUNT: usize = LOG_LENGTH / 4;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
