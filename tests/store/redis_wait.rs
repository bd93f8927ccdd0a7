//! Writes that count only when a replica has them.

use std::time::{Duration, Instant};

use raincheck::store::redis::{Namespace, Redis, RedisOpenError, RedisOptions, Wait};
use raincheck::store::{Store as _, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fleet::Sentinels;
use crate::redis_server::RedisServer;
use crate::rig::{commit_at_last, create_until, done, hour, update};

#[tokio::test]
async fn a_durable_write_is_done_when_a_replica_has_it_and_else_in_doubt() {
    let fleet = Sentinels::start();
    let mut options = options(&fleet.servers[0]);
    options.wait = Some(wait(1, false));
    let store = open(&options).await.unwrap();
    let create = durable();
    done(store.commit(&create).await.unwrap());
    let mut copy = fleet.servers[1].connect();
    let key = format!("{{ns:00}}:t:{}", create.id);
    let there: u64 = redis::cmd("EXISTS").arg(&key).query(&mut copy).unwrap();
    assert_eq!(there, 1, "done, and the replica does not have it");

    fleet.servers[1].freeze();
    let mut end = update(&create, 1, "end");
    end.durable = true;
    let doubt = store.commit(&end).await;
    assert!(
        matches!(doubt, Err(StoreError::Unavailable(_))),
        "{doubt:?}"
    );
    // What nobody relies on does not wait.
    let started = Instant::now();
    done(store.commit(&create_until(hour())).await.unwrap());
    assert!(started.elapsed() < TIMEOUT);
    // The same write again, over another connection too: it stands, and still nobody else has it.
    let again = open(&options).await.unwrap();
    for store in [&store, &again] {
        let doubt = store.commit(&end).await;
        assert!(
            matches!(doubt, Err(StoreError::Unavailable(_))),
            "{doubt:?}"
        );
    }
    fleet.servers[1].thaw();
    let settled = commit_at_last(&store, &end);
    assert_eq!(done(settled.await), 2);
}

#[tokio::test]
async fn many_durable_writes_at_once_all_count() {
    let fleet = Sentinels::start();
    let mut options = options(&fleet.servers[0]);
    options.wait = Some(wait(1, false));
    let store = open(&options).await.unwrap();
    let writes: Vec<_> = (0..600).map(|_| durable()).collect();
    let commits = writes.iter().map(|write| store.commit(write));
    for commit in futures_util::future::join_all(commits).await {
        done(commit.unwrap());
    }
    for write in &writes {
        assert!(store.load(write.id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_the_server_cannot_wait_for_is_refused_at_the_start() {
    let server = RedisServer::start();
    let mut options = options(&server);
    options.wait = Some(wait(1, false));
    let refused = open(&options).await.unwrap_err();
    assert!(
        matches!(
            refused,
            RedisOpenError::WaitReplicas {
                connected: 0,
                wanted: 1,
                ..
            }
        ),
        "{refused:?}"
    );
    // Either it has no WAITAOF, or it has no file: without one it could never be synced.
    options.wait = Some(wait(0, true));
    let refused = open(&options).await.unwrap_err();
    assert!(
        matches!(refused, RedisOpenError::WaitAof { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("store.wait_aof"), "{refused}");
}

fn durable() -> raincheck::store::Write {
    raincheck::store::Write {
        durable: true,
        ends: false,
        listed: None,
        ..create_until(hour())
    }
}

/// How long a durable write waits for its replicas.
const TIMEOUT: Duration = Duration::from_millis(500);

fn wait(replicas: usize, aof: bool) -> Wait {
    Wait {
        replicas,
        aof,
        timeout: TIMEOUT,
    }
}

fn options(server: &RedisServer) -> RedisOptions {
    RedisOptions::new(server.url(), Namespace::parse("ns").unwrap())
}

async fn open(options: &RedisOptions) -> Result<Redis, RedisOpenError> {
    Redis::open(options, &TaskTracker::new(), &CancellationToken::new()).await
}
