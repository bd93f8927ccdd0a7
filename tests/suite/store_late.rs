//! With `store.required_at_start = false` raincheck starts before its Redis.

use std::time::Duration;

use hyper::Method;
use serde_json::json;

use crate::redis_server::RedisServer;
use crate::support::proxy::Proxy;
use crate::support::{Client, Config, Era, Rig, Upstream, in_both_eras};

in_both_eras!(
    what_needs_no_store_is_answered_before_it_is_there,
    everything_begins_when_the_store_is_there,
    a_call_that_runs_meanwhile_is_not_lost,
    tasks_of_a_dead_replica_are_found_then,
    a_caller_is_the_same_for_every_replica,
    it_stops_while_it_waits,
    a_reload_counts_for_what_begins_later,
);

/// The answer in an outage.
const AWAY: (u16, i64) = (503, -32603);

/// A Redis that is not there yet, and keeps what it is given.
fn no_redis() -> RedisServer {
    let mut redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    redis.kill();
    redis
}

fn config(redis: &RedisServer) -> Config {
    Config::always()
        .redis(&redis.url())
        .store("required_at_start = false\ncreate_patience = \"100ms\"\nread_patience = \"100ms\"")
        .tool("echo", "mode = \"never\"")
        .tool("slow", "mode = \"auto\"\ngrace_window = \"50ms\"")
}

fn watched(config: Config) -> Config {
    let listeners = "probes = \"127.0.0.1:0\"\nlisten = \"127.0.0.1:0\"";
    config.section("admin", listeners)
}

async fn probes(proxy: &Proxy) -> Client {
    Client::of(proxy.probes().await)
}

async fn what_needs_no_store_is_answered_before_it_is_there(era: Era) {
    let redis = no_redis();
    let rig = Rig::start(era, watched(config(&redis))).await;
    let client = rig.client();
    let echoed = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(echoed.into_text(), "x");
    for method in ["tools/list", "server/discover"] {
        client.request(method, json!({})).send().await.into_result();
    }
    // Its window ends without a task, so it stays on its connection.
    let slow = client.call("slow", json!({"ms": 200})).await;
    assert_eq!(slow.into_text(), "slept");
    let refused = client.call("held", json!({})).await;
    assert_eq!(refused.refusal(), AWAY);
    assert_eq!(rig.upstream.tally("held").started, 0);
    let unknown = json!({"taskId": "0193e7a0-0000-7000-8000-000000000000"});
    let asked = client.request("tasks/get", unknown).send().await;
    assert_eq!(asked.refusal(), AWAY);

    let probes = probes(&rig.proxy).await;
    let ready = probes.page("/readyz").await;
    let missing =
        json!({"ready": false, "missing": ["store"], "draining": false, "degraded": "store_away"});
    assert_eq!((ready.status, ready.json()), (503, missing));
    assert_eq!(probes.page("/livez").await.status, 200);
    let operators = Client::of(rig.proxy.operators().await);
    assert_eq!(operators.page("/tasks").await.status, 503);
    assert_eq!(operators.page("/metrics").await.status, 200);
    rig.proxy.until_said("the store is not there yet", 1).await;
    let log = rig.proxy.log();
    assert_eq!(
        log.matches("the store is not there yet").count(),
        1,
        "{log}"
    );
}

async fn everything_begins_when_the_store_is_there(era: Era) {
    let mut redis = no_redis();
    let rig = Rig::start(era, watched(config(&redis))).await;
    // A connection that was there before goes on, and so does a new one.
    let (before, after) = (rig.client(), rig.client());
    assert_eq!(before.call("held", json!({})).await.refusal(), AWAY);
    redis.restart();
    probes(&rig.proxy).await.until_page("/readyz", 200).await;
    rig.proxy.until_said("the store is there", 1).await;
    let task = before.call("held", json!({})).await.into_task();
    rig.upstream.release("held");
    after.until(&task, "completed").await;
    let operators = Client::of(rig.proxy.operators().await);
    let listed = operators.page("/tasks?state=completed").await;
    assert_eq!(listed.json()["tasks"][0]["id"], *task.id, "{}", listed.body);
}

async fn a_call_that_runs_meanwhile_is_not_lost(era: Era) {
    let mut redis = no_redis();
    let config = config(&redis).tool("held", "mode = \"auto\"\ngrace_window = \"50ms\"");
    let rig = Rig::start(era, watched(config)).await;
    let client = rig.client();
    let call = client.call("held", json!({}));
    let opening = async {
        rig.upstream.until_started("held").await;
        redis.restart();
        probes(&rig.proxy).await.until_page("/readyz", 200).await;
        rig.upstream.release("held");
    };
    let (answer, ()) = tokio::join!(call, opening);
    answer.into_result();
    assert_eq!(rig.upstream.tally("held").started, 1);
}

async fn tasks_of_a_dead_replica_are_found_then(era: Era) {
    let mut redis = no_redis();
    redis.restart();
    let upstream = Upstream::start(era).await;
    let config = config(&redis)
        .section("replica", "lease = \"3s\"")
        .section("upstream", "shared = false");
    let mut before = config.clone().start(&upstream.url()).await;
    let client = Client::of(before.address());
    let task = client.call("held", json!({})).await.into_task();
    upstream.until_started("held").await;
    before.kill();
    redis.kill();

    let after = watched(config).start(&upstream.url()).await;
    let client = Client::of(after.address());
    let asked = client.asking("tasks/get", &task).send().await;
    assert_eq!(asked.refusal(), AWAY);
    redis.restart();
    probes(&after).await.until_page("/readyz", 200).await;
    let state = client.until(&task, "failed").await;
    let reason = &state["error"]["data"]["io.raincheck/reason"];
    assert_eq!(reason, "owner_lost", "{state}");
}

/// The names of callers are made with a key that is in the store.
async fn a_caller_is_the_same_for_every_replica(era: Era) {
    let mut redis = no_redis();
    let rig = Rig::start(era, watched(config(&redis))).await;
    let (alice, bob) = (
        rig.client().named("Bearer a"),
        rig.client().named("Bearer b"),
    );
    assert_eq!(alice.call("held", json!({})).await.refusal(), AWAY);
    redis.restart();
    probes(&rig.proxy).await.until_page("/readyz", 200).await;
    let task = alice.call("held", json!({})).await.into_task();
    let other = config(&redis).start(&rig.upstream.url()).await;
    let elsewhere = alice.at(other.address());
    assert_eq!(elsewhere.get(&task).await["status"], "working");
    let foreign = bob
        .at(other.address())
        .asking("tasks/get", &task)
        .send()
        .await;
    assert_eq!(foreign.refusal().1, -32602);
}

async fn it_stops_while_it_waits(era: Era) {
    let redis = no_redis();
    let mut rig = Rig::start(era, config(&redis)).await;
    rig.proxy.until_said("the store is not there yet", 1).await;
    assert_eq!(rig.proxy.stop().await.code(), Some(0));
}

async fn a_reload_counts_for_what_begins_later(era: Era) {
    let mut redis = no_redis();
    let rig = Rig::start(era, watched(config(&redis))).await;
    let operators = Client::of(rig.proxy.operators().await);
    let next = watched(config(&redis)).tool("work", "mode = \"never\"");
    rig.proxy.directory.file("raincheck.toml", &next.text());
    let reloaded = operators.http(Method::POST, "/reload").send().await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.body);
    let client = rig.client();
    let text = async || client.call("work", json!({})).await.into_result();
    text().await;
    redis.restart();
    probes(&rig.proxy).await.until_page("/readyz", 200).await;
    text().await;
    // And a reload after that counts for the parts over the store.
    rig.proxy
        .directory
        .file("raincheck.toml", &watched(config(&redis)).text());
    let reloaded = operators.http(Method::POST, "/reload").send().await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.body);
    client.call("work", json!({})).await.into_task();
}

/// A Redis that refuses raincheck ends the process with the reason, at the start and later.
#[tokio::test]
async fn a_wrong_password_is_told_and_not_waited_for() {
    let mut redis = RedisServer::with(&["--requirepass", "right"]);
    redis.kill();
    let upstream = Upstream::start(Era::Modern).await;
    let plain = config(&redis).redis(&format!("{}&pass=wrong", redis.url()));
    let mut proxy = plain.start(&upstream.url()).await;
    proxy.until_said("the store is not there yet", 1).await;
    assert!(proxy.is_running());
    redis.restart();
    let ended = tokio::time::timeout(Duration::from_secs(30), proxy.ended()).await;
    assert_eq!(ended.unwrap().code(), Some(1));
    let log = proxy.log();
    assert!(log.contains("Password authentication failed"), "{log}");
    assert!(!log.contains("pass=wrong"), "{log}");
}
