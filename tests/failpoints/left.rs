//! What is left in a store when all is over: nothing that anybody would still have to do.

use std::path::Path;
use std::sync::Arc;

use raincheck::base::clock::System;
use raincheck::store::Store as _;
use raincheck::store::embedded::Embedded;

use super::redis_server::RedisServer;
use super::support::{PATIENCE, eventually};

/// No open task in the file of a process that is gone.
pub(crate) async fn nothing_in_file(path: &Path) {
    let store = Embedded::open(path, Arc::new(System)).unwrap();
    let open = store.due(u64::MAX, 100).await.unwrap();
    assert!(open.is_empty(), "still open: {open:?}");
    store.close().await;
}

/// No open task, nothing that an owner would still have to do, and no key that stays for ever but
/// the documented one.
pub(crate) async fn nothing_in_redis(server: &RedisServer) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let keys = async |redis: &mut redis::aio::MultiplexedConnection| -> Vec<String> {
        redis::cmd("KEYS")
            .arg("*")
            .query_async(redis)
            .await
            .unwrap()
    };
    eventually(PATIENCE, "no task is open in Redis", async || {
        let mut open = keys(&mut redis.clone()).await;
        // Redis drops a set with its last member.
        open.retain(|key| key.ends_with("}:due") || key.contains("}:o:"));
        open.is_empty().then_some(()).ok_or_else(|| open.join(", "))
    })
    .await;
    for key in keys(&mut redis).await {
        let left: i64 = redis::cmd("PTTL")
            .arg(&key)
            .query_async(&mut redis)
            .await
            .unwrap();
        let stays = key == "{suite:meta}";
        assert_eq!(left == -1, stays, "{key} has {left} ms left");
    }
}
