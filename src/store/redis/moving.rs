//! Gives a namespace to the same service at another address.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script};

use super::error::RedisOpenError;
use super::keys::Keys;
use super::open::{RedisOptions, examine_servers, find, namespace_field};
use crate::task::id::Incarnation;

/// The outcome of moving a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// No store was ever opened there: the next start takes it.
    Unused,
    /// It serves this server already.
    Already,
    /// It served `from`, and now serves the other server.
    Done { from: String },
    /// Nothing was changed, because these replicas are alive in front of `from`.
    Alive { from: String, replicas: Vec<String> },
}

/// Makes the namespace serve `options.serves`. While replicas live, only with `by_force`: they would go on in front
/// of the other server.
pub async fn move_namespace(
    options: &RedisOptions,
    by_force: bool,
) -> Result<Moved, RedisOpenError> {
    let (topology, keys) = find(options).await?;
    let (mut connection, server) = examine_servers(&topology, &keys, options).await?;
    let from = namespace_field(&mut connection, &server, &keys, "serves").await?;
    let ours = options.serves.as_deref().unwrap_or_default();
    let Some(from) = from else {
        return Ok(Moved::Unused);
    };
    if from == ours {
        return Ok(Moved::Already);
    }
    let unreachable = |cause| RedisOpenError::Unreachable { server, cause };
    let moving = async {
        let replicas = living(&mut connection, &keys).await?;
        if !replicas.is_empty() && !by_force {
            return Ok(Some(Moved::Alive {
                from: from.clone(),
                replicas,
            }));
        }
        let is_done = replace(&mut connection, &keys, &from, ours).await?;
        Ok(is_done.then_some(Moved::Done { from }))
    };
    let moved = moving.await.map_err(unreachable)?;
    // Another process moved it at the same moment.
    moved.ok_or(RedisOpenError::MovedMeanwhile)
}

/// The replicas whose leases run.
async fn living(connection: &mut MultiplexedConnection, keys: &Keys) -> RedisResult<Vec<String>> {
    // Leases end by the clock of Redis, so that clock decides who lives.
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    let now_ms = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    let mut range = redis::cmd("ZRANGEBYSCORE");
    range.arg(keys.live()).arg(format!("({now_ms}")).arg("+inf");
    let names: Vec<String> = range.query_async(connection).await?;
    let replicas = names.iter().map(|name| {
        let incarnation = Incarnation::from_text(name);
        incarnation.replica().to_owned()
    });
    Ok(replicas.collect())
}

/// Writes the other server, unless the namespace no longer serves `from`.
async fn replace(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    from: &str,
    to: &str,
) -> RedisResult<bool> {
    const REPLACE: &str = "if redis.call('HGET', KEYS[1], 'serves') ~= ARGV[1] then return 0 end \
                           redis.call('HSET', KEYS[1], 'serves', ARGV[2]) return 1";
    let script = Script::new(REPLACE);
    let mut call = script.key(keys.meta());
    let done: u8 = call.arg(from).arg(to).invoke_async(connection).await?;
    Ok(done == 1)
}
