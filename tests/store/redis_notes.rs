//! What only Redis does with notes and lists: they are shared, nothing outlives its expiry, and what
//! cannot be kept is said.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::base::clock::{Clock as _, System};
use raincheck::store::key_value::KeyValue;
use raincheck::store::kv::{ENTRIES_MAX, Kind, KvStore as _, Name};
use raincheck::store::patience::StorePatience;
use raincheck::store::{Store as _, StoreError, Write};
use raincheck::task::id::{Caller, Fence};
use redis::aio::MultiplexedConnection;

use crate::eventually::eventually;
use crate::redis_server::RedisServer;
use crate::rig::{PATIENCE, create_until, done, hour, raw, redis_store};

#[tokio::test]
async fn every_key_of_notes_and_lists_has_an_expiry() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let large = Bytes::from(vec![7; 600_000]);
    store
        .claim(name(Kind::Claim), "x".into(), hour())
        .await
        .unwrap();
    store
        .put(name(Kind::Session), "x".into(), hour())
        .await
        .unwrap();
    store
        .put(name(Kind::Answer), large.clone(), hour())
        .await
        .unwrap();
    store
        .append(name(Kind::Events), Fence(1), 1, large, hour())
        .await
        .unwrap();
    let create = listed();
    done(store.commit(&create).await.unwrap());
    done(store.commit(&create_until(hour())).await.unwrap());
    let mut keys: Vec<String> = ask(&mut raw, &["KEYS", "*"]).await;
    keys.retain(|key| key.starts_with("{ns:00}:n:") || key.starts_with("{ns:00}:c:"));
    keys.sort();
    let starts: Vec<_> = keys.iter().map(|key| &key[..11]).collect();
    let expected = ["c:0", "n:a", "n:e", "n:k", "n:s"].map(|start| format!("{{ns:00}}:{start}"));
    assert_eq!(starts, expected);
    for key in keys {
        let left: i64 = ask(&mut raw, &["PTTL", &key]).await;
        assert!((3_500_000..=3_600_000).contains(&left), "{key}: {left}");
    }
}

#[tokio::test]
async fn replicas_share_notes_and_strangers_do_not() {
    let server = RedisServer::start();
    let (a, b) = (
        redis_store(&server.url(), "ns").await,
        redis_store(&server.url(), "ns").await,
    );
    let stranger = redis_store(&server.url(), "other").await;
    let claimed = a.claim(name(Kind::Claim), "a".into(), hour()).await;
    assert_eq!(claimed.unwrap(), None);
    let claimed = b.claim(name(Kind::Claim), "b".into(), hour()).await;
    assert_eq!(claimed.unwrap().unwrap(), "a");
    assert_eq!(stranger.find(name(Kind::Claim)).await.unwrap(), None);
    a.append(name(Kind::Events), Fence(1), 1, "event".into(), hour())
        .await
        .unwrap();
    let entries = b.entries(name(Kind::Events), 0).await.unwrap();
    assert_eq!(entries, [(1, "event".into())]);
}

#[tokio::test]
async fn a_log_keeps_no_piece_of_what_went() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let log = name(Kind::Events);
    let large = Bytes::from(vec![7; 600_000]);
    store
        .append(log, Fence(1), 1, large.clone(), hour())
        .await
        .unwrap();
    store.append(log, Fence(1), 2, large, hour()).await.unwrap();
    let key = key_of(&mut raw, "{ns:00}:n:e*").await;
    // The head of the second is not there: its writer went before it wrote that.
    ask::<u64>(&mut raw, &["HDEL", &key, "2"]).await;
    let whole = store.entries(log, 0).await.unwrap();
    assert_eq!(whole.len(), 1, "half an entry");
    // The last piece of the first is not there, as after an eviction.
    ask::<u64>(&mut raw, &["HDEL", &key, "1:2"]).await;
    let whole = store.entries(log, 0).await.unwrap();
    assert_eq!(whole.len(), 0, "an entry without its end");
    for number in 3..=ENTRIES_MAX + 2 {
        store
            .append(log, Fence(1), number, "event".into(), hour())
            .await
            .unwrap();
    }
    let fields: u64 = ask(&mut raw, &["HLEN", &key]).await;
    assert_eq!(fields, ENTRIES_MAX);
}

/// A replica died amid a long entry, and its successor says something short in its place.
#[tokio::test]
async fn a_log_has_what_is_written_over_half_an_entry() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let log = name(Kind::Events);
    let long = Bytes::from(vec![7; 1_200_000]);
    for instead in [Bytes::from("short"), Bytes::from(vec![8; 600_000])] {
        store
            .append(log, Fence(1), 1, long.clone(), hour())
            .await
            .unwrap();
        let key = key_of(&mut raw, "{ns:00}:n:e*").await;
        ask::<u64>(&mut raw, &["HDEL", &key, "1"]).await;
        assert_eq!(store.entries(log, 0).await.unwrap().len(), 0);
        for _ in 0..2 {
            let append = store.append(log, Fence(1), 1, instead.clone(), hour());
            append.await.unwrap();
            let entries = store.entries(log, 0).await.unwrap();
            assert!(entries == [(1, instead.clone())], "{}", entries.len());
        }
    }
}

#[tokio::test]
async fn a_list_keeps_no_task_that_expired() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let lasting = listed();
    done(store.commit(&lasting).await.unwrap());
    let mut short = create_until(System.now_ms() + 100);
    short.listed = Some(short.caller);
    done(store.commit(&short).await.unwrap());
    let gone = async || store.load(short.id).await.unwrap().is_none();
    eventually(PATIENCE, "the task expires", gone).await;
    let listed_until = [(lasting.expires_ms, lasting.id)];
    assert_eq!(
        store.listed(&short.caller, None, 9).await.unwrap(),
        listed_until
    );
    done(store.commit(&listed()).await.unwrap());
    let key = key_of(&mut raw, "{ns:00}:c:*").await;
    let names: u64 = ask(&mut raw, &["ZCARD", &key]).await;
    assert_eq!(names, 2);
    let left: i64 = ask(&mut raw, &["PTTL", &key]).await;
    assert!(left > 3_500_000, "the longest counts: {left}");
}

/// One caller may have a hundred thousand tasks: to read all of them for each page held Redis up for 200 ms.
#[tokio::test]
async fn a_page_of_a_long_list_reads_no_more_than_itself() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let newest = listed();
    done(store.commit(&newest).await.unwrap());
    let key = key_of(&mut raw, "{ns:00}:c:*").await;
    let fill = "for n = 1, 20000 do redis.call('ZADD', KEYS[1], ARGV[1] - n * ARGV[2], \
        string.format('00000000-0000-4000-8000-%012x', n)) end return 'OK'";
    let expires = (newest.expires_ms - 1).to_string();
    // All of one expiry, and each of its own. Of one expiry the second page finds the first again.
    for (apart, reads) in [("0", 3), ("1", 2)] {
        ask::<String>(&mut raw, &["EVAL", fill, "1", &key, &expires, apart]).await;
        ask::<String>(&mut raw, &["CONFIG", "RESETSTAT"]).await;
        let first = store.listed(&newest.caller, None, 101).await.unwrap();
        assert_eq!(first[0], (newest.expires_ms, newest.id));
        let second = store.listed(&newest.caller, first.last().copied(), 101);
        let second = second.await.unwrap();
        assert_eq!(second.len(), 101);
        assert!(second[0] < first[100], "{:?}", second[0]);
        let told: String = ask(&mut raw, &["INFO", "all"]).await;
        let is_told = told.contains(&format!("cmdstat_zrange:calls={reads},"));
        assert!(is_told, "{told}");
        let sent = told.split("total_net_output_bytes:").nth(1);
        let sent: u64 = sent.and_then(|it| it.lines().next()?.parse().ok()).unwrap();
        assert!(sent < 100_000, "Redis sent {sent} bytes");
    }
}

#[tokio::test]
async fn a_full_server_refuses_notes_and_tells_what_it_has() {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let (claim, log) = (name(Kind::Claim), name(Kind::Events));
    store.claim(claim, "first".into(), hour()).await.unwrap();
    store
        .append(log, Fence(1), 1, "first".into(), hour())
        .await
        .unwrap();
    ask::<()>(&mut raw, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let other = Name::of(Kind::Claim, &["other"]);
    for full in [
        store.claim(other, "x".into(), hour()).await.map(drop),
        store.put(other, "x".into(), hour()).await,
        store
            .append(log, Fence(1), 2, "x".into(), hour())
            .await
            .map(drop),
        store
            .append(log, Fence(1), 2, Bytes::from(vec![0; 600_000]), hour())
            .await
            .map(drop),
    ] {
        assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
    }
    // A claim that stands is known again all the same.
    let again = store.claim(claim, "first".into(), hour()).await;
    assert_eq!(again.unwrap(), None);
    let told = store.claim(claim, "second".into(), hour()).await;
    assert_eq!(told.unwrap().unwrap(), "first");
    let entries = store.entries(log, 0).await.unwrap();
    assert_eq!(entries, [(1, "first".into())]);
    store.remove(log).await.unwrap();
}

#[tokio::test]
async fn what_raincheck_did_not_write_is_corrupt() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let mut raw = raw(&server).await;
    let (claim, log) = (name(Kind::Claim), name(Kind::Events));
    store.claim(claim, "x".into(), hour()).await.unwrap();
    store
        .append(log, Fence(1), 1, "x".into(), hour())
        .await
        .unwrap();
    let create = listed();
    done(store.commit(&create).await.unwrap());
    let claim_key = key_of(&mut raw, "{ns:00}:n:k*").await;
    let log_key = key_of(&mut raw, "{ns:00}:n:e*").await;
    let list_key = key_of(&mut raw, "{ns:00}:c:*").await;

    ask::<u64>(&mut raw, &["HSET", &log_key, "foreign", "x"]).await;
    corrupt(&store.entries(log, 0).await);
    ask::<u64>(&mut raw, &["ZADD", &list_key, "9e15", "foreign"]).await;
    corrupt(&store.listed(&create.caller, None, 9).await);

    for key in [&claim_key, &log_key, &list_key] {
        ask::<u64>(&mut raw, &["DEL", key]).await;
        ask::<u64>(&mut raw, &["LPUSH", key, "foreign"]).await;
    }
    corrupt(&store.claim(claim, "x".into(), hour()).await);
    corrupt(&store.find(claim).await);
    corrupt(&store.append(log, Fence(1), 1, "x".into(), hour()).await);
    corrupt(&store.entries(log, 0).await);
    corrupt(&store.listed(&create.caller, None, 9).await);
    let refused = listed();
    corrupt(&store.commit(&refused).await);
    let latest = store.load(refused.id).await.unwrap();
    assert!(latest.is_none(), "half a create");
}

#[tokio::test]
async fn a_notebook_waits_for_a_store_that_comes_back_and_no_longer() {
    let server = RedisServer::start();
    let store = redis_store(&server.url(), "ns").await;
    let notebook = |patience| {
        let store = Arc::clone(&store);
        let patience = StorePatience {
            read: patience,
            create: patience,
        };
        KeyValue::new(store, Arc::new(System), patience)
    };
    let (patient, hasty) = (
        notebook(Duration::from_secs(30)),
        notebook(Duration::from_millis(50)),
    );
    let lifetime = Duration::from_hours(1);
    let claim = name(Kind::Claim);
    server.freeze();
    let lost = hasty.find(claim).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    let waiting = tokio::spawn({
        let patient = patient.clone();
        async move { patient.claim(claim, "mine".into(), lifetime).await }
    });
    // Longer than a command of the store's takes: it is sent more than once.
    let lost = notebook(Duration::from_millis(700)).find(claim).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    server.thaw();
    let claimed = waiting.await.unwrap().unwrap();
    assert_eq!(claimed, None, "its own claim, sent twice");
    assert_eq!(patient.find(claim).await.unwrap().unwrap(), "mine");
    let mut raw = raw(&server).await;
    let key = key_of(&mut raw, "{ns:00}:n:k*").await;
    let left: i64 = ask(&mut raw, &["PTTL", &key]).await;
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
}

fn name(kind: Kind) -> Name {
    Name::of(kind, &["one"])
}

fn listed() -> Write {
    Write {
        caller: Caller::from_bytes([7; 16]),
        listed: Some(Caller::from_bytes([7; 16])),
        ..create_until(hour())
    }
}

#[track_caller]
fn corrupt<T: std::fmt::Debug>(answered: &Result<T, StoreError>) {
    assert!(
        matches!(answered, Err(StoreError::Corrupt(_))),
        "{answered:?}"
    );
}

/// The one key of this pattern.
async fn key_of(raw: &mut MultiplexedConnection, pattern: &str) -> String {
    let mut keys: Vec<String> = ask(raw, &["KEYS", pattern]).await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

async fn ask<T: redis::FromRedisValue>(raw: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query_async(raw).await.unwrap()
}
