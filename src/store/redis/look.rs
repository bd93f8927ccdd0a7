//! A look at Redis before anybody opens a store there: what a start would be refused for. Nothing
//! is written, and no namespace is taken.

use redis::aio::MultiplexedConnection;

use super::Redis;
use super::address::Target;
use super::error::OpenError;
use super::keys::{self, Keys};
use super::open::{Options, examine_servers};
use super::reach::Reach;
use super::topology::Topology;

impl Redis {
    /// Whether a store could be opened.
    pub async fn look(options: &Options) -> Result<(), OpenError> {
        let target = Target::parse(&options.url).ok_or(OpenError::Url)?;
        let topology = Topology::find(target, Reach::new(options.tls.clone())).await?;
        let buckets = if topology.is_cluster() {
            keys::BUCKETS
        } else {
            1
        };
        let keys = Keys::new(&options.namespace, buckets);
        let (mut connection, server) = examine_servers(&topology, &keys, options).await?;
        let namespace = options.namespace.clone();
        let buckets = keys.count().to_string();
        if let Some(theirs) = noted(&mut connection, &server, &keys, "buckets").await?
            && theirs != buckets
        {
            return Err(OpenError::Buckets {
                namespace,
                theirs,
                ours: buckets,
            });
        }
        let Some(ours) = &options.serves else {
            return Ok(());
        };
        match noted(&mut connection, &server, &keys, "serves").await? {
            Some(theirs) if theirs != *ours => Err(OpenError::Foreign {
                namespace,
                meta: keys.meta().to_owned(),
                theirs,
                ours: ours.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// What stands in the namespace's own hash. `None`: nobody was there.
async fn noted(
    connection: &mut MultiplexedConnection,
    server: &str,
    keys: &Keys,
    field: &str,
) -> Result<Option<String>, OpenError> {
    let mut get = redis::cmd("HGET");
    get.arg(keys.meta()).arg(field);
    let found = get.query_async(connection).await;
    found.map_err(|cause| OpenError::Unreachable {
        server: server.to_owned(),
        cause,
    })
}
