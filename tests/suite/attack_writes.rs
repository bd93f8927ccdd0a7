//! What one client can make raincheck write into Redis, and what is left of it.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};

use crate::held;
use crate::redis_server::RedisServer;
use crate::support::pair::Pair;
use crate::support::session::{NEWEST, Session, initialize};
use crate::support::{Client, Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras};

in_both_eras!(
    results_beyond_the_quota_are_not_kept,
    a_key_of_a_call_that_is_refused_is_not_kept,
);

/// The keys in Redis, by the part that says what they are, such as `t` or `nc`.
async fn keys(redis: &RedisServer) -> BTreeMap<String, Vec<String>> {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut read = redis::cmd("KEYS");
    let names: Vec<String> = read.arg("*").query_async(&mut connection).await.unwrap();
    let mut by_kind = BTreeMap::<_, Vec<_>>::new();
    for name in names {
        let mut parts = name.split(':').skip(2);
        let kind = match (parts.next(), parts.next()) {
            (Some("n"), Some(value)) => format!("n{}", &value[..1]),
            (Some(kind), _) => kind.to_owned(),
            (None, _) => continue,
        };
        by_kind.entry(kind).or_default().push(name);
    }
    by_kind
}

async fn count(redis: &RedisServer, kind: &str) -> usize {
    keys(redis).await.get(kind).map_or(0, Vec::len)
}

/// The session of a client that raincheck knows, which the other replica is told of.
async fn known(client: Client) -> Session {
    let mut hello = initialize(NEWEST, json!({}));
    hello["params"]["clientInfo"] = json!({"name": "claude-code", "version": "2.1.330"});
    Session::greeting(client, NEWEST, &hello).await.0
}

#[tokio::test]
async fn what_is_told_of_a_session_goes_with_it() {
    let redis = RedisServer::start();
    let config = Config::always().redis(&redis.url());
    let rig = Rig::start(Era::Legacy, config).await;
    let sessions = join_all((0..20).map(|_| known(rig.client()))).await;
    assert_eq!(count(&redis, "nc").await, 20);
    for session in &sessions[1..] {
        session.end().await;
    }
    let what = "what was told of ended sessions is gone";
    eventually(PATIENCE, what, async || {
        let left = count(&redis, "nc").await;
        if left == 1 { Ok(()) } else { Err(left) }
    })
    .await;
}

fn cancel(id: usize) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

#[tokio::test]
async fn cancels_of_calls_that_nobody_made_are_bounded() {
    let pair = Pair::of(Upstream::start(Era::Legacy).await, Config::always()).await;
    let session = Session::open(pair.at_a().named("Bearer a"), NEWEST).await;
    for first in 0..20 {
        let cancels = (0..50).map(|n| session.post(&cancel(first * 50 + n)).send());
        for answer in join_all(cancels).await {
            assert_eq!(answer.status, 202);
        }
    }
    let what = "as many cancels as one caller may have are there";
    eventually(PATIENCE, what, async || {
        let there = count(&pair.redis, "nx").await;
        if there == 256 { Ok(()) } else { Err(there) }
    })
    .await;
    // A cancel of another caller reaches the replica that carries its call.
    let other = held::Session::open(pair.at_a().named("Bearer b")).await;
    let mut stream = other.calling("held", json!({})).stream().await;
    held::primed(&mut stream).await;
    pair.upstream.until_started("held").await;
    let at_b = other.over(pair.at_b().named("Bearer b"));
    assert_eq!(at_b.cancelling().send().await.status, 202);
    pair.upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1)
        .await;
    assert_eq!(count(&pair.redis, "nx").await, 257);
}

/// Invented credentials are as many callers: their sessions, which nobody uses, make room for those of others.
#[tokio::test]
async fn sessions_of_invented_callers_leave_room() {
    let redis = RedisServer::start();
    let config = Config::always().redis(&redis.url());
    let rig = Rig::start(Era::Modern, config).await;
    let used = Session::open(rig.client().named("Bearer used"), NEWEST).await;
    let hello = initialize(NEWEST, json!({})).to_string();
    for first in 0..82 {
        let invented = (0..50).map(|n| {
            let client = rig.client().named(format!("Bearer {}", first * 50 + n));
            client.post(hello.clone()).send()
        });
        for answer in join_all(invented).await {
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
    }
    // The room for sessions that nobody used yet, and the one in use.
    assert_eq!(count(&redis, "ns").await, 4_001);
    let other = Session::open(rig.client().named("Bearer other"), NEWEST).await;
    for session in [&used, &other] {
        let answer = session.request(2, "tools/list", json!({})).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

async fn results_beyond_the_quota_are_not_kept(era: Era) {
    let redis = RedisServer::start();
    let config = Config::always()
        .redis(&redis.url())
        .section("limits", "task_bytes_per_caller = \"64KiB\"")
        .section("upstream", "concurrency = 1");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    // The calls wait for their turn behind this one, so that all of them are tasks before the first has its result.
    let first = client.call("held", json!({})).await.into_task();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let call = client.call("big", json!({"bytes": 40_000}));
        tasks.push(call.await.into_task());
    }
    rig.upstream.release("held");
    client.until(&first, "completed").await;
    let mut kept = 0;
    for task in &tasks {
        let state = client
            .until_it(task, "ended", |state| {
                state["status"] == "completed" || state["status"] == "failed"
            })
            .await;
        if state["status"] == "completed" {
            kept += 1;
            continue;
        }
        assert_eq!(state["error"]["data"]["io.raincheck/reason"], "quota");
        assert_eq!(state["error"]["data"]["io.raincheck/effect"], "unknown");
    }
    assert_eq!(kept, 2, "up to the quota, and the one that exceeds it");
    assert_eq!(count(&redis, "x").await, 2);
}

async fn a_key_of_a_call_that_is_refused_is_not_kept(era: Era) {
    let redis = RedisServer::start();
    let config = Config::always()
        .redis(&redis.url())
        .section("limits", "calls = 1");
    let rig = Rig::start(era, config).await;
    let keyed = |key: usize| {
        let call = rig.client().calling("held", json!({}));
        call.header("idempotency-key", &key.to_string()).send()
    };
    let first = keyed(0).await.into_task();
    rig.upstream.until_started("held").await;
    for key in 1..20 {
        let refused = keyed(key).await;
        assert_eq!(refused.status, 503, "{}", refused.text);
    }
    assert_eq!(keyed(0).await.into_task().id, first.id);
    assert_eq!(count(&redis, "nk").await, 1);
    rig.upstream.release("held");
    rig.client().until(&first, "completed").await;
    eventually(PATIENCE, "a key that was refused is free", async || {
        let again = keyed(1).await;
        if again.status == 200 {
            Ok(())
        } else {
            Err(again.text)
        }
    })
    .await;
}

/// A call that a client may come back to is written down: beyond the quota it ends with its connection.
#[tokio::test]
async fn calls_with_a_log_count_among_the_tasks_of_their_caller() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(Era::Legacy).await;
    let config = Config::always()
        .redis(&redis.url())
        .section("limits", "tasks_per_caller = 3");
    let proxy = config.start(&upstream.url()).await;
    let session = Session::open(Client::of(proxy.address()), NEWEST).await;
    let mut streams = Vec::new();
    for id in 0..6 {
        let call = session.calling(id, "steps", json!({"n": 2}));
        let mut stream = call.stream().await;
        stream.event().await.unwrap();
        streams.push(stream);
    }
    let what = "the records of calls with a log are there";
    eventually(PATIENCE, what, async || {
        let there = count(&redis, "t").await;
        if there == 3 { Ok(()) } else { Err(there) }
    })
    .await;
    upstream.release("steps");
    for mut stream in streams {
        let answer = stream.next_of_answer().await;
        assert_eq!(answer["result"]["content"][0]["text"], "stepped");
    }
    assert_eq!(count(&redis, "t").await, 3);
    assert_eq!(session.http(Method::DELETE).send().await.status, 200);
}
