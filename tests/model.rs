//! Random histories against a model of two hundred lines, and against every store: what a client,
//! an owner or a finder could tell apart is the same, and so are the indexes.
//!
//! `RAINCHECK_MODEL_CASES=100000 cargo test --test model` for the long run. A history that fails is
//! shrunk and printed with its seed.
#![expect(clippy::disallowed_methods, reason = "tests own their environment")]
#![expect(clippy::print_stdout, reason = "how far a run went")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, TestRunner};
use proptest_state_machine::ReferenceStateMachine as _;
use raincheck::base::clock::System;
use raincheck::store::Store;
use raincheck::store::embedded::Embedded;
use raincheck::store::memory::Memory;
use raincheck::store::redis::{Namespace, Redis, RedisOptions};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[path = "support/directory.rs"]
#[expect(dead_code, reason = "a redis-server has one")]
mod directory;
#[path = "support/eventually.rs"]
#[expect(dead_code, reason = "only a starting redis-server is waited for")]
mod eventually;
#[path = "model/faulty.rs"]
mod faulty;
#[path = "model/lost_end.rs"]
mod lost_end;
#[expect(dead_code, reason = "other tests kill it and start it anew")]
#[path = "support/redis.rs"]
mod redis_server;
#[path = "model/reference.rs"]
mod reference;
#[path = "model/subject.rs"]
mod subject;

use redis_server::RedisServer;
use reference::{Model, Transition};
use subject::Subject;

const CASES: u32 = 10_000;

/// Transitions of one history.
const LENGTH: std::ops::Range<usize> = 1..24;

fn cases() -> u32 {
    let asked = std::env::var("RAINCHECK_MODEL_CASES").ok();
    asked.map_or(CASES, |text| text.parse().unwrap())
}

fn histories(runtime: &Runtime, store: &Arc<dyn Store>, cases: u32) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let strategy = Model::sequential_strategy(LENGTH);
    let walked = RefCell::new(0_u64);
    let ran = runner.run(&strategy, |(model, transitions, seen)| {
        *walked.borrow_mut() += transitions.len() as u64;
        runtime.block_on(history(Subject::new(Arc::clone(store)), model, transitions));
        // Every transition of it was seen.
        if let Some(seen) = seen {
            seen.store(usize::MAX >> 1, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
    println!("{cases} histories, {} transitions", walked.borrow());
}

async fn history(mut subject: Subject, mut model: Model, transitions: Vec<Transition>) {
    for transition in transitions {
        model = Model::apply(model, &transition);
        subject.apply(&model, transition).await;
    }
    subject.check(&model).await;
    subject.clean().await;
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn the_memory_store_is_as_the_model() {
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(System)));
    // It is the contract's simplest and the tests' own.
    histories(&runtime(), &store, cases() / 5);
}

#[test]
fn the_embedded_store_is_as_the_model() {
    let store: Arc<dyn Store> = Arc::new(Embedded::in_memory(Arc::new(System)).unwrap());
    histories(&runtime(), &store, cases());
}

#[test]
fn the_redis_store_is_as_the_model() {
    let server = RedisServer::start();
    let runtime = runtime();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let options = RedisOptions::new(server.url(), Namespace::parse("model").unwrap());
    let store = runtime
        .block_on(Redis::open(&options, &tasks, &stop))
        .unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    histories(&runtime, &store, cases());
    runtime.block_on(every_key_expires(&server));
}

/// However busy the machine is.
const KEYS_PATIENCE: Duration = Duration::from_secs(30);

async fn every_key_expires(server: &RedisServer) {
    let client = redis::Client::open(server.url()).unwrap();
    // All keys at once take longer than the half second that the library waits by itself.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(KEYS_PATIENCE));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut redis = connection.await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut redis)
        .await
        .unwrap();
    assert!(keys.len() > 100, "{} keys", keys.len());
    let mut pipe = redis::pipe();
    for key in &keys {
        pipe.cmd("PTTL").arg(key);
    }
    let left: Vec<i64> = pipe.query_async(&mut redis).await.unwrap();
    for (key, left) in keys.iter().zip(left) {
        assert!(left > 0 || key == "{model:meta}", "{key} never expires");
    }
}
