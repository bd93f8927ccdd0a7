//! What a Redis that is away, wiped, cut off or demoted means for writers and followers.

use std::time::{Duration, Instant};

use raincheck::store::redis::{Namespace, Redis, RedisOptions};
use raincheck::store::{ChangeEvent, ChangedTask, Store as _, StoreError};
use raincheck::task::id::Revision;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::eventually::eventually;
use crate::redis_server::RedisServer;
use crate::rig::{PATIENCE, commit_at_last, create_until, done, hour, raw, redis_store, update};

#[tokio::test]
async fn a_frozen_server_leaves_the_write_in_doubt_and_the_same_nonce_settles_it() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    server.freeze();
    let write = update(&create, 1, "in doubt");
    let started = Instant::now();
    let lost = store.commit(&write).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    server.thaw();
    // It was executed after the thaw, once.
    let settled = commit_at_last(&store, &write).await;
    assert_eq!(done(settled), 2);
    assert_eq!(
        store
            .load(create.id)
            .await
            .unwrap()
            .unwrap()
            .version
            .revision,
        Revision(2)
    );
}

#[tokio::test]
async fn a_store_that_lost_everything_is_used_again_and_followers_are_told() {
    let mut server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut changes = store.changes();
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    done(store.commit(&update(&create, 1, "on")).await.unwrap());
    assert!(matches!(next(&mut changes).await, ChangeEvent::Changed(_)));
    server.kill();
    let lost = store.load(create.id).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    server.restart();
    let load = async || store.load(create.id).await;
    let found = eventually(PATIENCE, "the store answers", load).await;
    assert!(found.is_none());
    // Scripts are loaded again by themselves, and the follower goes on.
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    assert_eq!(next(&mut changes).await, ChangeEvent::Missed);
    done(store.commit(&update(&create, 1, "on")).await.unwrap());
    let change = ChangedTask {
        id: create.id,
        revision: Revision(2),
    };
    assert_eq!(next(&mut changes).await, ChangeEvent::Changed(change));
}

#[tokio::test]
async fn a_follower_that_was_cut_off_goes_on_where_it_was() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut changes = store.changes();
    let mut raw = raw(&server).await;
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    let first = update(&create, 1, "on");
    done(store.commit(&first).await.unwrap());
    let seen = |revision| {
        ChangeEvent::Changed(ChangedTask {
            id: create.id,
            revision: Revision(revision),
        })
    };
    assert_eq!(next(&mut changes).await, seen(2));

    cut_off(&mut raw).await;
    let second = update(&first, 2, "on");
    let _ = store.commit(&second).await;
    commit_at_last(&store, &second).await;
    assert_eq!(next(&mut changes).await, seen(3));
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let mut create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    redis::cmd("SCRIPT")
        .arg("FLUSH")
        .exec_async(&mut raw)
        .await
        .unwrap();
    create = update(&create, 1, "on");
    assert_eq!(done(store.commit(&create).await.unwrap()), 2);
    store.beat(None, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn the_follower_ends_with_the_store_or_when_told_to() {
    let server = RedisServer::start();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let options = RedisOptions::new(server.url(), Namespace::parse("ns").unwrap());
    let dropped = Redis::open(&options, &tasks, &stop).await.unwrap();
    let stopped = Redis::open(&options, &tasks, &stop).await.unwrap();
    assert_eq!(tasks.len(), 2);
    drop(dropped);
    eventually(PATIENCE, "one task runs", async || match tasks.len() {
        1 => Ok(()),
        running => Err(running),
    })
    .await;
    let mut changes = stopped.changes();
    stop.cancel();
    tasks.close();
    tokio::time::timeout(Duration::from_secs(10), tasks.wait())
        .await
        .unwrap();
    assert_eq!(next(&mut changes).await, ChangeEvent::Closed);
}

#[tokio::test]
async fn a_follower_is_told_when_the_log_was_trimmed_past_it() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut changes = store.changes();
    let mut raw = raw(&server).await;
    let mut write = create_until(hour());
    done(store.commit(&write).await.unwrap());
    write = update(&write, 1, "on");
    done(store.commit(&write).await.unwrap());
    let seen = |id, revision| {
        ChangeEvent::Changed(ChangedTask {
            id,
            revision: Revision(revision),
        })
    };
    assert_eq!(next(&mut changes).await, seen(write.id, 2));

    // The follower alone is kept out, while three more changes and a trim to the last go by.
    let mut deny = redis::cmd("ACL");
    deny.arg("SETUSER").arg("default").arg("-xread");
    deny.exec_async(&mut raw).await.unwrap();
    cut_off(&mut raw).await;
    for revision in 2..=4 {
        write = update(&write, revision, "on");
        commit_at_last(&store, &write).await;
    }
    let mut trim = redis::cmd("XTRIM");
    trim.arg("{ns:00}:log")
        .arg("MAXLEN")
        .arg(1)
        .exec_async(&mut raw)
        .await
        .unwrap();
    let mut allow = redis::cmd("ACL");
    allow.arg("SETUSER").arg("default").arg("+xread");
    allow.exec_async(&mut raw).await.unwrap();

    assert_eq!(next(&mut changes).await, ChangeEvent::Missed);
    // It may say so more than once; what is still there comes all the same.
    let last = loop {
        let told = next(&mut changes).await;
        if told != ChangeEvent::Missed {
            break told;
        }
    };
    assert_eq!(last, seen(write.id, 5));
}

#[tokio::test]
async fn a_primary_that_is_none_any_more_is_left() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    let mut demote = redis::cmd("REPLICAOF");
    demote
        .arg("127.0.0.1")
        .arg("1")
        .exec_async(&mut raw)
        .await
        .unwrap();
    let before = connections(&mut raw).await;
    let refused = eventually(PATIENCE, "another server is looked for", async || {
        let refused = store.commit(&update(&create, 1, "on")).await;
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{refused:?}"
        );
        let now = connections(&mut raw.clone()).await;
        if now >= before + 2 { Ok(now) } else { Err(now) }
    })
    .await;
    assert!(refused < before + 20, "a storm of connections: {refused}");
    let mut promote = redis::cmd("REPLICAOF");
    promote
        .arg("NO")
        .arg("ONE")
        .exec_async(&mut raw)
        .await
        .unwrap();
    let write = update(&create, 1, "on");
    let done_again = commit_at_last(&store, &write);
    assert_eq!(done(done_again.await), 2);
}

/// Connections ever taken.
async fn connections(raw: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: redis::InfoDict = redis::cmd("INFO").query_async(raw).await.unwrap();
    info.get("total_connections_received").unwrap()
}

async fn cut_off(raw: &mut redis::aio::MultiplexedConnection) {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes");
    kill.exec_async(raw).await.unwrap();
}

async fn next(changes: &mut raincheck::store::Changes) -> ChangeEvent {
    tokio::time::timeout(Duration::from_secs(10), changes.next())
        .await
        .unwrap()
}
