//! What only the Redis store does: it is shared, can be away, and can be set up wrongly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use raincheck::clock::{Clock as _, System};
use raincheck::store::redis::{Namespace, OpenError, Options, Redis};
use raincheck::store::{Change, Seen, Store as _, StoreError, Write};
use raincheck::task::id::{Fence, Incarnation, Revision};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::redis_server::RedisServer;
use crate::rig::{conflict, create_until, done, eventually, redis_store, update};

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
    let change = Change {
        id: create.id,
        revision: Revision(2),
    };
    assert_eq!(next(&mut changes).await, Seen::Changed(change));
    assert_eq!(a.caller_key().await.unwrap(), b.caller_key().await.unwrap());
    assert!(stranger.load(create.id).await.unwrap().is_none());
    assert_ne!(
        a.caller_key().await.unwrap(),
        stranger.caller_key().await.unwrap()
    );
}

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
    let settled = eventually(
        || async { store.commit(&write).await.ok() },
        Option::is_some,
    )
    .await;
    assert_eq!(done(settled.unwrap()), 2);
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
    assert!(matches!(next(&mut changes).await, Seen::Changed(_)));
    server.kill();
    let lost = store.load(create.id).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    server.restart();
    let found = eventually(
        || async { store.load(create.id).await.ok() },
        Option::is_some,
    )
    .await;
    assert!(found.unwrap().is_none());
    // Scripts are loaded again by themselves, and the follower goes on.
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    assert_eq!(next(&mut changes).await, Seen::Missed);
    done(store.commit(&update(&create, 1, "on")).await.unwrap());
    let change = Change {
        id: create.id,
        revision: Revision(2),
    };
    assert_eq!(next(&mut changes).await, Seen::Changed(change));
}

#[tokio::test]
async fn a_follower_that_was_cut_off_misses_nothing_or_says_so() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut changes = store.changes();
    let mut raw = raw(&server).await;
    let create = create_until(hour());
    done(store.commit(&create).await.unwrap());
    let first = update(&create, 1, "on");
    done(store.commit(&first).await.unwrap());
    let seen = |revision| {
        Seen::Changed(Change {
            id: create.id,
            revision: Revision(revision),
        })
    };
    assert_eq!(next(&mut changes).await, seen(2));

    // Cut off, written meanwhile: seen late.
    cut_off(&mut raw).await;
    let second = update(&first, 2, "on");
    let _ = store.commit(&second).await;
    eventually(
        || async { store.commit(&second).await.ok() },
        Option::is_some,
    )
    .await;
    assert_eq!(next(&mut changes).await, seen(3));

    // Cut off, and the log trimmed meanwhile: told.
    cut_off(&mut raw).await;
    let third = update(&second, 3, "on");
    let _ = store.commit(&third).await;
    eventually(
        || async { store.commit(&third).await.ok() },
        Option::is_some,
    )
    .await;
    let mut trim = redis::cmd("XTRIM");
    trim.arg("{ns:00}:log").arg("MAXLEN").arg(0);
    trim.exec_async(&mut raw).await.unwrap();
    // Either it was quick enough to see it, or it must say that it was not.
    let told = next(&mut changes).await;
    assert!(told == seen(4) || told == Seen::Missed, "{told:?}");
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
    let beat = store
        .beat(Some(&mine), Duration::from_secs(60))
        .await
        .unwrap();
    assert!(beat.dead.is_empty());
    store
        .beat(Some(&mine), Duration::from_secs(60))
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
    let stands = conflict(
        store
            .commit(&update(&create, beyond, "stale"))
            .await
            .unwrap(),
    );
    assert_eq!(stands.version.revision, Revision(beyond + 1));
}

#[tokio::test]
async fn a_server_that_may_evict_tasks_is_refused_unless_allowed() {
    let server = RedisServer::with(&["--maxmemory-policy", "volatile-lru"]);
    let mut options = options(&server.url());
    let refused = open(&options).await.unwrap_err();
    assert!(matches!(&refused, OpenError::Eviction { policy, .. } if policy == "volatile-lru"));
    assert!(refused.to_string().contains("noeviction"), "{refused}");
    options.allow_eviction = true;
    open(&options).await.unwrap();
}

#[tokio::test]
async fn a_server_that_denies_config_and_info_is_used() {
    let server = RedisServer::start();
    let mut raw = raw(&server).await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER")
        .arg("tight")
        .arg("on")
        .arg(">pw")
        .arg("~{ns:*")
        .arg("+@all");
    user.arg("-config").arg("-info").arg("-script");
    user.exec_async(&mut raw).await.unwrap();
    let options = options(&format!("{}&user=tight&pass=pw", server.url()));
    let store = open(&options).await.unwrap();
    done(store.commit(&create_until(hour())).await.unwrap());
}

#[tokio::test]
async fn a_namespace_serves_one_upstream() {
    let server = RedisServer::start();
    let mut options = options(&server.url());
    options.serves = Some("weather, 2025-11-25".into());
    open(&options).await.unwrap();
    open(&options).await.unwrap();
    options.serves = Some("billing, 2026-07-28".into());
    let refused = open(&options).await.unwrap_err().to_string();
    assert!(
        refused.contains("weather") && refused.contains("billing"),
        "{refused}"
    );
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_without_the_password() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    for url in [
        format!("{}&pass=hunter2", server.url()),
        "redis+unix:///nowhere/at/all?pass=hunter2".to_owned(),
        "redis://:hunter2@127.0.0.1:1/0".to_owned(),
        "http://:hunter2@127.0.0.1/".to_owned(),
    ] {
        let error = open(&options(&url)).await.unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hunter2"), "{told}");
        assert!(!error.to_string().contains('\n'), "{told}");
    }
}

#[tokio::test]
async fn the_follower_ends_with_the_store_or_when_told_to() {
    let server = RedisServer::start();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let options = options(&server.url());
    let dropped = Redis::open(&options, &tasks, &stop).await.unwrap();
    let stopped = Redis::open(&options, &tasks, &stop).await.unwrap();
    assert_eq!(tasks.len(), 2);
    drop(dropped);
    eventually(|| async { tasks.len() }, |running| *running == 1).await;
    let mut changes = stopped.changes();
    stop.cancel();
    tasks.close();
    tokio::time::timeout(Duration::from_secs(10), tasks.wait())
        .await
        .unwrap();
    assert_eq!(next(&mut changes).await, Seen::Closed);
}

fn hour() -> u64 {
    System.now_ms() + 3_600_000
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

fn options(url: &str) -> Options {
    Options::new(url, Namespace::parse("ns").unwrap())
}

async fn open(options: &Options) -> Result<Arc<Redis>, OpenError> {
    Redis::open(options, &TaskTracker::new(), &CancellationToken::new())
        .await
        .map(Arc::new)
}

async fn raw(server: &RedisServer) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
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

async fn next(changes: &mut raincheck::store::Changes) -> Seen {
    tokio::time::timeout(Duration::from_secs(10), changes.next())
        .await
        .unwrap()
}
