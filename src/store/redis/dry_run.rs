//! The check whether a start could use this Redis, without opening a store.
//!
//! The check writes nothing and does not claim the namespace.

use bytes::Bytes;

use super::Redis;
use super::error::RedisOpenError;
use super::keys::{Keys, slot_of};
use super::open::{RedisOptions, connect, examine_servers, find, namespace_field};
use super::topology::Topology;
use crate::store::kv::Name;

impl Redis {
    /// Checks whether a store could be opened. Returns the values that the store has under these names.
    pub async fn dry_run(
        options: &RedisOptions,
        names: &[Name],
    ) -> Result<Vec<Option<Bytes>>, RedisOpenError> {
        let (topology, keys) = find(options).await?;
        let (mut connection, server) = examine_servers(&topology, &keys, options).await?;
        let namespace = options.namespace.clone();
        let buckets = keys.count().to_string();
        // A namespace without this field is free, and stays free: only a start claims it.
        if let Some(theirs) = namespace_field(&mut connection, &server, &keys, "buckets").await?
            && theirs != buckets
        {
            return Err(RedisOpenError::Buckets {
                namespace,
                theirs,
                ours: buckets,
            });
        }
        if let Some(ours) = &options.serves
            && let Some(theirs) = namespace_field(&mut connection, &server, &keys, "serves").await?
            && theirs != *ours
        {
            return Err(RedisOpenError::Foreign {
                namespace,
                theirs,
                ours: ours.clone(),
            });
        }
        let mut values = Vec::with_capacity(names.len());
        for name in names {
            values.push(value(&topology, &keys, *name).await?);
        }
        Ok(values)
    }
}

async fn value(
    topology: &Topology,
    keys: &Keys,
    name: Name,
) -> Result<Option<Bytes>, RedisOpenError> {
    let key = keys.note(name);
    let map = topology.map();
    let server = map
        .server_of(slot_of(&key))
        .ok_or(RedisOpenError::NoSlots)?;
    let mut connection = connect(topology.connector(), server).await?;
    let mut get = redis::cmd("GET");
    get.arg(key);
    let found: Result<Option<Vec<u8>>, _> = get.query_async(&mut connection).await;
    let found = found.map(|value| value.map(Bytes::from));
    found.map_err(|cause| RedisOpenError::Unreachable {
        server: server.name.clone(),
        cause,
    })
}
