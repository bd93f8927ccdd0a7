//! What several servers that belong together mean: tasks in many slots, a primary that moves, a node
//! that dies.

use std::time::Duration;

use raincheck::store::redis::{Namespace, Redis, RedisOpenError, RedisOptions};
use raincheck::store::{ChangeEvent, ChangedTask, Store as _, StoreError};
use raincheck::task::id::{Incarnation, Revision};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::eventually::eventually;
use crate::fleet::{Cluster, Sentinels, ask};
use crate::redis_server::RedisServer;
use crate::rig::{PATIENCE, commit_at_last, create_until, done, hour, redis_store, update};

#[tokio::test]
async fn a_clusters_tasks_are_on_all_nodes_and_every_replica_finds_them() {
    let cluster = Cluster::start();
    let (a, b) = (
        redis_store(&cluster.url(), "ns").await,
        redis_store(&cluster.url(), "ns").await,
    );
    let mut changes = b.changes();
    let mine = Incarnation::new("a");
    let mut writes = Vec::new();
    for _ in 0..60 {
        let mut create = create_until(hour());
        create.keep_for = Some(mine.clone());
        create.due_ms = Some(1);
        create.listed = Some(create.caller);
        done(a.commit(&create).await.unwrap());
        writes.push(create);
    }
    for node in &cluster.nodes {
        let mut connection = node.connect();
        let tasks: Vec<String> = ask(&mut connection, &["KEYS", "{ns:*}:t:*"]);
        assert!(tasks.len() > 5, "only {} of 60 are there", tasks.len());
    }
    assert_eq!(b.indexed(&mine).await.unwrap().len(), 60);
    let caller = writes[0].caller;
    let listed = b.listed(&caller, None, 100).await.unwrap();
    assert_eq!(listed.len(), 60);
    let mut paged = Vec::new();
    while let Some(place) = b
        .listed(&caller, paged.last().copied(), 1)
        .await
        .unwrap()
        .pop()
    {
        paged.push(place);
    }
    assert_eq!(paged, listed, "over all buckets");
    let mut due = Vec::new();
    for _ in 0..8 {
        due.append(&mut b.due(1, 100).await.unwrap());
    }
    assert_eq!(due.len(), 60);
    for create in &writes {
        assert!(b.load(create.id).await.unwrap().is_some());
        done(a.commit(&update(create, 1, "on")).await.unwrap());
    }
    let mut told: Vec<_> = writes.iter().map(|write| write.id).collect();
    while !told.is_empty() {
        match next(&mut changes).await {
            ChangeEvent::Changed(ChangedTask { id, revision }) => {
                assert_eq!(revision, Revision(2));
                let at = told.iter().position(|other| *other == id);
                told.swap_remove(at.expect("told twice, or of another task"));
            }
            other @ (ChangeEvent::Missed | ChangeEvent::Closed) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_node_that_was_killed_is_waited_for_and_its_log_goes_on() {
    let mut cluster = Cluster::start();
    let store = redis_store(&cluster.url(), "ns").await;
    let mut changes = store.changes();
    let mut writes = Vec::new();
    for _ in 0..30 {
        let create = create_until(hour());
        done(store.commit(&create).await.unwrap());
        writes.push(create);
    }
    cluster.nodes[2].kill();
    let mut away = 0;
    for create in &writes {
        match store.commit(&update(create, 1, "on")).await {
            Ok(commit) => assert_eq!(done(commit), 2),
            Err(StoreError::Unavailable(_)) => away += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(away > 0, "a third of the slots is gone");
    cluster.nodes[2].restart();
    cluster.wait();
    for create in &writes {
        let load = async || store.load(create.id).await;
        let found = eventually(PATIENCE, "the node answers", load).await;
        let stored = found.expect("what was acknowledged is on its disk");
        if stored.version.revision == Revision(1) {
            let write = update(create, 1, "on");
            let again = commit_at_last(&store, &write);
            assert_eq!(done(again.await), 2);
        }
    }
    let mut told = std::collections::HashSet::new();
    while told.len() < writes.len() {
        match next(&mut changes).await {
            ChangeEvent::Changed(change) => assert!(told.insert(change.id), "told twice"),
            ChangeEvent::Missed => {}
            ChangeEvent::Closed => panic!("closed"),
        }
    }
}

#[tokio::test]
async fn slots_that_move_to_another_node_are_found_there() {
    let cluster = Cluster::start();
    let store = redis_store(&cluster.url(), "ns").await;
    // The last node's slots, empty as they are, become the first one's; all but one, because a node
    // without slots becomes a replica.
    let mut first = cluster.nodes[0].connect();
    let id: String = ask(&mut first, &["CLUSTER", "MYID"]);
    // The younger claim wins among the nodes.
    ask::<redis::Value>(&mut first, &["CLUSTER", "BUMPEPOCH"]);
    for node in &cluster.nodes {
        let mut connection = node.connect();
        for slot in 10923..=16382 {
            ask::<()>(
                &mut connection,
                &["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id],
            );
        }
    }
    let mut changes = store.changes();
    for _ in 0..30 {
        // At the first try: MOVED says that nothing was executed.
        let create = create_until(hour());
        done(store.commit(&create).await.unwrap());
        done(store.commit(&update(&create, 1, "on")).await.unwrap());
        assert!(
            matches!(next(&mut changes).await, ChangeEvent::Changed(change) if change.id == create.id)
        );
    }
}

#[tokio::test]
async fn after_a_failover_the_new_primary_is_used_and_followed() {
    let mut fleet = Sentinels::start();
    let store = redis_store(&fleet.url(), "ns").await;
    let mut changes = store.changes();
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    let copied: i64 = ask(&mut fleet.servers[0].connect(), &["WAIT", "1", "5000"]);
    assert_eq!(copied, 1);
    fleet.servers[0].kill();
    let write = update(&create, 1, "on");
    let lost = store.commit(&write).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    let again = commit_at_last(&store, &write);
    assert_eq!(done(again.await), 2);
    let change = ChangedTask {
        id: create.id,
        revision: Revision(2),
    };
    loop {
        match next(&mut changes).await {
            ChangeEvent::Missed => {}
            seen @ (ChangeEvent::Changed(_) | ChangeEvent::Closed) => {
                break assert_eq!(seen, ChangeEvent::Changed(change));
            }
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_is_said_in_one_line() {
    let fleet = Sentinels::start();
    let server = RedisServer::start();
    let wrong = fleet.url().replace("/main", "/other");
    let refused = open(&wrong, "ns").await.unwrap_err();
    assert!(matches!(&refused, RedisOpenError::NoSuchPrimary { primary } if primary == "other"));
    let as_redis = fleet.url().replace("redis-sentinel://", "redis://");
    let refused = open(as_redis.split(',').next().unwrap(), "ns").await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::IsSentinel { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("write redis-sentinel://"));
    let refused = open("redis-sentinel://127.0.0.1:1/main", "ns")
        .await
        .unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::Sentinels { .. }),
        "{refused:?}"
    );
    let refused = open("redis-cluster://127.0.0.1:1", "ns").await.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::Nodes { .. }),
        "{refused:?}"
    );
    drop((fleet, server));
    let cluster = Cluster::start();
    let refused = open(&cluster.nodes[0].url(), "ns").await.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::Cluster { .. }),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_number_of_buckets_is_written_once() {
    let server = RedisServer::start();
    redis_store(&server.url(), "ns").await;
    let mut raw = server.connect();
    let buckets: String = ask(&mut raw, &["HGET", "{ns:meta}", "buckets"]);
    assert_eq!(buckets, "1");
    ask::<()>(&mut raw, &["HSET", "{ns:meta}", "buckets", "64"]);
    let refused = open(&server.url(), "ns").await.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::Buckets { .. }),
        "{refused:?}"
    );
}

async fn open(url: &str, namespace: &str) -> Result<Redis, RedisOpenError> {
    let options = RedisOptions::new(url, Namespace::parse(namespace).unwrap());
    Redis::open(&options, &TaskTracker::new(), &CancellationToken::new()).await
}

async fn next(changes: &mut raincheck::store::Changes) -> ChangeEvent {
    tokio::time::timeout(Duration::from_secs(10), changes.next())
        .await
        .unwrap()
}
