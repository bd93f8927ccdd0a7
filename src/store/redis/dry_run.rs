//! Whether a start could use this Redis, found out without opening a store.
//!
//! The check writes nothing and does not claim the namespace.

use redis::aio::MultiplexedConnection;

use super::Redis;
use super::address::Target;
use super::connector::RedisConnector;
use super::error::RedisOpenError;
use super::keys::{self, Keys};
use super::open::{RedisOptions, examine_servers};
use super::topology::Topology;

impl Redis {
    /// Whether a store could be opened.
    pub async fn dry_run(options: &RedisOptions) -> Result<(), RedisOpenError> {
        let target = Target::parse(&options.url).ok_or(RedisOpenError::Url)?;
        let topology = Topology::find(target, RedisConnector::new(options.tls.clone())).await?;
        let buckets = if topology.is_cluster() {
            keys::BUCKETS
        } else {
            1
        };
        let keys = Keys::new(&options.namespace, buckets);
        let (mut connection, server) = examine_servers(&topology, &keys, options).await?;
        let namespace = options.namespace.clone();
        let buckets = keys.count().to_string();
        if let Some(theirs) = namespace_field(&mut connection, &server, &keys, "buckets").await?
            && theirs != buckets
        {
            return Err(RedisOpenError::Buckets {
                namespace,
                theirs,
                ours: buckets,
            });
        }
        let Some(ours) = &options.serves else {
            return Ok(());
        };
        match namespace_field(&mut connection, &server, &keys, "serves").await? {
            Some(theirs) if theirs != *ours => Err(RedisOpenError::Foreign {
                namespace,
                meta: keys.meta().to_owned(),
                theirs,
                ours: ours.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// A field of the namespace's own hash, or `None` if no store was ever opened there.
async fn namespace_field(
    connection: &mut MultiplexedConnection,
    server: &str,
    keys: &Keys,
    field: &str,
) -> Result<Option<String>, RedisOpenError> {
    let mut get = redis::cmd("HGET");
    get.arg(keys.meta()).arg(field);
    let found = get.query_async(connection).await;
    found.map_err(|cause| RedisOpenError::Unreachable {
        server: server.to_owned(),
        cause,
    })
}
