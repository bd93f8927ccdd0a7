//! What outlives the process.

use serde_json::{Value, json};

use crate::redis_server::RedisServer;
use crate::support::shape::assert_state;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    finished_tasks_survive_a_kill_in_a_file,
    finished_tasks_survive_a_kill_in_redis,
    unfinished_calls_fail_honestly_in_a_file,
    unfinished_calls_fail_honestly_in_redis,
    a_stop_lets_short_calls_finish,
    a_stop_fails_long_calls_honestly,
);

/// The shortest lease there is, so that its end is seen soon.
fn in_redis(redis: &RedisServer) -> Config {
    Config::always()
        .redis(&redis.url())
        .section("replica", "lease = \"3s\"")
}

async fn finished_tasks_survive_a_kill_in_a_file(era: Era) {
    finished_tasks_survive(era, Config::always().embedded()).await;
}

async fn finished_tasks_survive_a_kill_in_redis(era: Era) {
    let redis = RedisServer::start();
    finished_tasks_survive(era, in_redis(&redis)).await;
}

pub(crate) async fn finished_tasks_survive(era: Era, config: Config) {
    let mut rig = Rig::start(era, config).await;
    let client = rig.client().named("Bearer alice");
    let mut before = Vec::new();
    let calls = [
        ("echo", "completed"),
        ("big", "completed"),
        ("error", "failed"),
        ("never", "cancelled"),
    ];
    for (tool, status) in calls {
        let task = client
            .call(tool, json!({"text": "x", "bytes": 1 << 20}))
            .await
            .into_task();
        if status == "cancelled" {
            client.cancel(&task).await.assert_acknowledged();
        }
        let state = client.until(&task, status).await;
        before.push((task, status, state));
    }
    rig.proxy.kill();
    rig.proxy.restart().await;
    let client = client.at(rig.proxy.address());
    for (task, status, state) in before {
        let after = client.get(&task).await;
        assert_state(&after, status);
        for field in ["createdAt", "lastUpdatedAt", "ttlMs", "result", "error"] {
            assert_eq!(after.get(field), state.get(field), "{status}: {field}");
        }
        let stranger = rig.client().asking("tasks/get", &task).send().await;
        assert_eq!(
            stranger.refusal(),
            (400, -32602),
            "it is still its caller's"
        );
    }
}

async fn unfinished_calls_fail_honestly_in_a_file(era: Era) {
    unfinished_calls_fail_honestly(era, Config::always().embedded()).await;
}

async fn unfinished_calls_fail_honestly_in_redis(era: Era) {
    let redis = RedisServer::start();
    unfinished_calls_fail_honestly(era, in_redis(&redis)).await;
}

async fn unfinished_calls_fail_honestly(era: Era, config: Config) {
    let mut rig = Rig::start(era, config).await;
    let client = rig.client();
    let working = client.call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    let asking = client.call("ask_two", json!({})).await.into_task();
    let state = client.until_it(&asking, "asking both", |state| {
        state["inputRequests"]
            .as_object()
            .is_some_and(|requests| requests.len() == 2)
    });
    let state = state.await;
    rig.proxy.kill();
    rig.proxy.restart().await;
    let client = client.at(rig.proxy.address());
    assert_owner_lost(&client.until(&working, "failed").await);
    assert_eq!(rig.upstream.tally("never").started, 1, "never run twice");
    match era {
        // Its question went with the process that could have answered the server.
        Era::Legacy => assert_owner_lost(&client.until(&asking, "failed").await),
        // Nothing is in flight: the replica that gets the answers carries the call on.
        Era::Modern => {
            let after = client.get(&asking).await;
            assert_eq!(after["inputRequests"], state["inputRequests"]);
            let keys = after["inputRequests"].as_object().unwrap().keys();
            let accept = json!({"action": "accept", "content": {"name": "x"}});
            let answers: Value = keys.map(|key| (key.clone(), accept.clone())).collect();
            client.update(&asking, answers).await.assert_acknowledged();
            let end = client.until(&asking, "completed").await;
            assert_eq!(end["result"]["content"][0]["text"], "x and x");
        }
    }
}

#[track_caller]
fn assert_owner_lost(state: &Value) {
    assert_state(state, "failed");
    assert_eq!(state["error"]["code"], -32603, "{state}");
    assert_eq!(
        state["error"]["data"]["io.raincheck/reason"], "owner_lost",
        "{state}"
    );
    assert_eq!(
        state["error"]["data"]["io.raincheck/effect"], "unknown",
        "{state}"
    );
}

async fn a_stop_lets_short_calls_finish(era: Era) {
    let mut rig = Rig::start(era, Config::always().embedded()).await;
    let client = rig.client();
    let task = client.call("slow", json!({"ms": 700})).await.into_task();
    rig.upstream.until_started("slow").await;
    assert!(rig.proxy.stop().await.success());
    rig.proxy.restart().await;
    assert_state(
        &client.at(rig.proxy.address()).get(&task).await,
        "completed",
    );
}

async fn a_stop_fails_long_calls_honestly(era: Era) {
    let config = Config::always()
        .embedded()
        .section("drain", "grace = \"4s\"");
    let mut rig = Rig::start(era, config).await;
    let client = rig.client();
    let task = client.call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    assert!(rig.proxy.stop().await.success());
    rig.upstream
        .until("never", "cancelled", |tally| tally.cancelled == 1)
        .await;
    rig.proxy.restart().await;
    let state = client.at(rig.proxy.address()).get(&task).await;
    assert_state(&state, "failed");
    assert_eq!(
        state["error"]["data"]["io.raincheck/reason"], "shutdown",
        "{state}"
    );
}

#[tokio::test]
async fn a_server_that_forgot_its_sessions_is_met_anew() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let client = rig.client();
    for round in 0..3 {
        let nonce = format!("round {round}");
        let call = json!({"nonce": nonce, "text": "x"});
        let task = client.call("echo", call).await.into_task();
        client.until(&task, "completed").await;
        assert_eq!(rig.upstream.tally(&nonce).started, 1, "{nonce}");
        rig.upstream.forget_sessions();
    }
}
