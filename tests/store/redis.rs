//! What only the Redis store does: it is shared, exact, and can be full.

use std::time::Duration;

use bytes::Bytes;
use raincheck::base::clock::{Clock as _, System};
use raincheck::store::{ChangeEvent, ChangedTask, Store as _, StoreError, Write};
use raincheck::task::id::{Fence, Incarnation, Revision, TaskId};

use crate::redis_server::RedisServer;
use crate::rig::{conflict, create_until, done, hour, raw, redis_store, update};

#[tokio::test]
async fn every_key_has_an_expiry_but_the_documented_one() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mine = Incarnation::new("a");
    let create = full(&mine);
    done(store.commit(&create).await.unwrap());
    done(
        store
            .commit(&Write {
                due_ms: Some(9),
                ..update(&create, 1, "on")
            })
            .await
            .unwrap(),
    );
    store
        .put_result(create.id, Fence(1), Bytes::from_static(b"x"), hour())
        .await
        .unwrap();
    store
        .beat(Some(&mine), Duration::from_secs(10))
        .await
        .unwrap();
    store.caller_key().await.unwrap();
    let mut raw = raw(&server).await;
    let mut keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut raw)
        .await
        .unwrap();
    keys.sort();
    let id = create.id;
    let expected = [
        "{ns:00}:due".to_owned(),
        "{ns:00}:log".to_owned(),
        format!("{{ns:00}}:o:{}", mine.as_str()),
        format!("{{ns:00}}:q:{id}"),
        format!("{{ns:00}}:t:{id}"),
        format!("{{ns:00}}:x:{id}:1"),
        "{ns:live}".to_owned(),
        "{ns:meta}".to_owned(),
    ];
    assert_eq!(keys, expected);
    for key in keys {
        let left: i64 = redis::cmd("PTTL")
            .arg(&key)
            .query_async(&mut raw)
            .await
            .unwrap();
        match key.as_str() {
            "{ns:meta}" => assert_eq!(left, -1),
            _ => assert!((3_500_000..=3_600_000).contains(&left), "{key}: {left}"),
        }
    }
}

/// Also where nothing was committed before.
#[tokio::test]
async fn a_log_that_was_only_told_something_expires() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    store.tell(TaskId::random()).await.unwrap();
    let mut raw = raw(&server).await;
    let mut left = redis::cmd("PTTL");
    left.arg("{ns:00}:log");
    let left: i64 = left.query_async(&mut raw).await.unwrap();
    assert!((1..=3_600_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_shared_key_lives_as_long_as_the_longest_of_its_tasks() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mine = Incarnation::new("a");
    for expires_ms in [hour(), System.now_ms() + 1_000, hour() + 60_000, hour()] {
        let create = Write {
            expires_ms,
            ..full(&mine)
        };
        done(store.commit(&create).await.unwrap());
    }
    let mut raw = raw(&server).await;
    let left: i64 = redis::cmd("PTTL")
        .arg("{ns:00}:due")
        .query_async(&mut raw)
        .await
        .unwrap();
    assert!((3_600_001..=3_660_000).contains(&left), "{left}");
}

#[tokio::test]
async fn replicas_see_each_others_tasks_changes_and_caller_key() {
    let server = RedisServer::start();
    let (a, b) = (
        redis_store(&server.url(), "ns").await,
        redis_store(&server.url(), "ns").await,
    );
    let stranger = redis_store(&server.url(), "other").await;
    let mut changes = b.changes();
    let create = create_until(hour());
    done(a.commit(&create).await.unwrap());
    assert_eq!(b.load(create.id).await.unwrap().unwrap().record, "created");
    done(a.commit(&update(&create, 1, "on")).await.unwrap());
    let change = ChangedTask {
        id: create.id,
        revision: Revision(2),
    };
    let seen = tokio::time::timeout(Duration::from_secs(10), changes.next()).await;
    assert_eq!(seen.unwrap(), ChangeEvent::Changed(change));
    assert_eq!(a.caller_key().await.unwrap(), b.caller_key().await.unwrap());
    assert!(stranger.load(create.id).await.unwrap().is_none());
    assert_ne!(
        a.caller_key().await.unwrap(),
        stranger.caller_key().await.unwrap()
    );
}

#[tokio::test]
async fn a_full_server_refuses_new_tasks_but_nobody_is_taken_for_dead() {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let mine = Incarnation::new("a");
    let create = full(&mine);
    done(store.commit(&create).await.unwrap());
    let mut limit = redis::cmd("CONFIG");
    limit.arg("SET").arg("maxmemory").arg(1);
    limit.exec_async(&mut raw).await.unwrap();
    let refused = full(&mine);
    let full = store.commit(&refused).await;
    assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
    let full = store
        .put_result(create.id, Fence(1), Bytes::from_static(b"x"), hour())
        .await;
    assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
    assert!(store.load(refused.id).await.unwrap().is_none());
    assert_eq!(store.indexed(&mine).await.unwrap(), [create.id]);
    assert!(store.load(create.id).await.unwrap().is_some());
    // What goes on with a task waits for room, whole; its end does not.
    let on = Write {
        keep_for: Some(mine.clone()),
        ..update(&create, 1, "on")
    };
    let full = store.commit(&on).await;
    assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
    let latest = store.load(create.id).await.unwrap().unwrap();
    assert_eq!(latest.record, create.record);
    let end = Write {
        ends: true,
        drop_from: Some(mine.clone()),
        ..update(&create, 1, "ended")
    };
    assert_eq!(done(store.commit(&end).await.unwrap()), 2);
    assert_eq!(done(store.commit(&end).await.unwrap()), 2);
    assert!(store.indexed(&mine).await.unwrap().is_empty());
    assert!(store.due(u64::MAX >> 12, 10).await.unwrap().is_empty());
    let beat = store
        .beat(Some(&mine), Duration::from_mins(1))
        .await
        .unwrap();
    assert!(beat.dead.is_empty());
    store
        .beat(Some(&mine), Duration::from_mins(1))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_key_of_another_type_is_corrupt_and_nothing_is_half_written() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let mine = Incarnation::new("a");
    for key in [
        "{ns:00}:due".to_owned(),
        format!("{{ns:00}}:o:{}", mine.as_str()),
    ] {
        redis::cmd("SET")
            .arg(&key)
            .arg("foreign")
            .exec_async(&mut raw)
            .await
            .unwrap();
        let create = full(&mine);
        let refused = store.commit(&create).await;
        assert!(
            matches!(refused, Err(StoreError::Corrupt(_))),
            "{refused:?}"
        );
        assert!(store.load(create.id).await.unwrap().is_none());
        redis::cmd("DEL")
            .arg(&key)
            .exec_async(&mut raw)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn revisions_are_exact_where_doubles_are_not() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    let beyond = (1_u64 << 53) + 1;
    let key = format!("{{ns:00}}:t:{}", create.id);
    redis::cmd("HSET")
        .arg(&key)
        .arg("r")
        .arg(beyond)
        .exec_async(&mut raw)
        .await
        .unwrap();
    let write = update(&create, beyond, "on");
    assert_eq!(done(store.commit(&write).await.unwrap()), beyond + 1);
    let latest = conflict(
        store
            .commit(&update(&create, beyond, "stale"))
            .await
            .unwrap(),
    );
    assert_eq!(latest.version.revision, Revision(beyond + 1));
}

/// No command reads more than 4096 of them, so that a slow network delays no other command for long.
#[tokio::test]
async fn a_long_due_index_is_read_in_pages() {
    const DUE: u64 = 10_000;
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let mut ids: Vec<TaskId> = (0..DUE).map(|_| TaskId::random()).collect();
    let mut add = redis::cmd("ZADD");
    add.arg("{ns:00}:due");
    for (due_ms, id) in (1..).zip(&ids) {
        add.arg(due_ms).arg(id.to_string());
    }
    add.exec_async(&mut raw).await.unwrap();
    // One that is not due yet is in no answer.
    ids.pop();
    for (limit, commands) in [(4_095, 1), (4_096, 1), (4_097, 2), (9_000, 3), (18_000, 3)] {
        let mut reset = redis::cmd("CONFIG");
        reset.arg("RESETSTAT").exec_async(&mut raw).await.unwrap();
        let found = store.due(DUE - 1, limit).await.unwrap();
        assert!(found.iter().eq(ids.iter().take(limit)), "{limit}");
        let mut stats = redis::cmd("INFO");
        let stats: String = stats
            .arg("commandstats")
            .query_async(&mut raw)
            .await
            .unwrap();
        let calls = format!("cmdstat_zrangebyscore:calls={commands},");
        assert!(stats.contains(&calls), "{limit}: {stats}");
    }
}

/// A create with everything.
fn full(mine: &Incarnation) -> Write {
    Write {
        due_ms: Some(5),
        keep_for: Some(mine.clone()),
        request: Some(Bytes::from_static(b"request")),
        ..create_until(hour())
    }
}
