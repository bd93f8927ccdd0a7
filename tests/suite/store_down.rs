//! A store that is away is said to be away, never that a task is unknown.

use std::time::Duration;

use serde_json::json;

use crate::redis_server::RedisServer;
use crate::support::client::Task;
use crate::support::{Config, Era, Rig, eventually, in_both_eras};

in_both_eras!(
    nothing_is_sent_that_cannot_be_kept,
    a_task_is_not_called_unknown,
    what_needs_no_store_is_not_touched,
    a_frozen_store_is_waited_for,
    a_call_becomes_a_task_when_the_store_is_back,
    a_cancel_stops_the_call_at_once_and_is_written_later,
    what_ends_meanwhile_is_written_later,
);

const AWAY: (u16, i64) = (503, -32603);

async fn rig(era: Era) -> (Rig, RedisServer) {
    let redis = RedisServer::start();
    let config = Config::always()
        .redis(&redis.url())
        .tool("echo", "mode = \"never\"")
        .tool("slow", "mode = \"auto\"\ngrace_window = \"50ms\"");
    let rig = Rig::start(era, config).await;
    // The server is known, and its tools.
    rig.client()
        .call("echo", json!({"text": ""}))
        .await
        .into_result();
    (rig, redis)
}

async fn nothing_is_sent_that_cannot_be_kept(era: Era) {
    let (rig, mut redis) = rig(era).await;
    redis.kill();
    let refused = rig.client().call("held", json!({})).await;
    assert_eq!(refused.refusal(), AWAY);
    assert_eq!(rig.upstream.tally("held").started, 0);
    redis.restart();
    let client = rig.client();
    let again = async || client.call("held", json!({})).await.of_status(200);
    eventually(Duration::from_secs(10), "tasks are made again", again).await;
    rig.upstream.until_started("held").await;
    assert_eq!(rig.upstream.tally("held").started, 1);
}

async fn a_task_is_not_called_unknown(era: Era) {
    let (rig, mut redis) = rig(era).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    redis.kill();
    let ask = |method| {
        client
            .asking(method, &task)
            .edit(|message| {
                message["params"]["inputResponses"] = json!({});
            })
            .send()
    };
    let answers = tokio::join!(ask("tasks/get"), ask("tasks/update"), ask("tasks/cancel"));
    for answer in [answers.0, answers.1, answers.2] {
        assert_eq!(answer.refusal(), AWAY, "{}", answer.body);
    }
}

async fn what_needs_no_store_is_not_touched(era: Era) {
    let (rig, mut redis) = rig(era).await;
    redis.kill();
    let client = rig.client();
    assert_eq!(
        client.call("echo", json!({"text": "x"})).await.into_text(),
        "x"
    );
    client
        .request("tools/list", json!({}))
        .send()
        .await
        .into_result();
    client
        .request("server/discover", json!({}))
        .send()
        .await
        .into_result();
    // It runs already: it stays held on its connection.
    let slow = client.call("slow", json!({"ms": 400})).await;
    assert_eq!(slow.into_text(), "slept");
    assert_eq!(rig.upstream.tally("slow").finished, 1);
}

async fn a_frozen_store_is_waited_for(era: Era) {
    let (rig, redis) = rig(era).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    redis.freeze();
    let mut get = std::pin::pin!(client.get(&task));
    // Longer than one command may take, shorter than a poll waits.
    let early = tokio::time::timeout(Duration::from_millis(1200), get.as_mut()).await;
    assert!(early.is_err(), "answered without its store");
    redis.thaw();
    let state = get.await;
    assert_eq!(state["status"], "working");
}

/// The store blinked at the end of the grace window, and of the patience of a client without Tasks.
async fn a_call_becomes_a_task_when_the_store_is_back(era: Era) {
    let mut redis = RedisServer::start();
    let terms = "companion_tools = true\nfallback_after = \"100ms\"";
    let config = Config::auto("100ms").terms(terms).redis(&redis.url());
    let rig = Rig::start(era, config).await;
    let (client, plain) = (rig.client(), rig.client().without_tasks());
    for client in [&client, &plain] {
        let quick = client.call("echo", json!({"text": ""})).await;
        assert_eq!(quick.into_text(), "");
    }
    redis.kill();
    let blink = async {
        rig.proxy.until_said("could not become a task yet", 2).await;
        redis.restart();
    };
    let becomes = client.call("held", json!({"nonce": "a"}));
    let issued = plain.call("held", json!({"nonce": "b"}));
    let (becomes, issued, ()) = tokio::join!(becomes, issued, blink);
    let task = becomes.into_task();
    let issued = issued.into_result();
    assert!(
        issued["structuredContent"]["ticket"].is_string(),
        "{issued}"
    );
    rig.upstream.release("a");
    rig.upstream.release("b");
    client.until(&task, "completed").await;
    for nonce in ["a", "b"] {
        assert_eq!(rig.upstream.tally(nonce).started, 1);
    }
}

/// The client hears that the store is away, and the server hears that no client waits.
async fn a_cancel_stops_the_call_at_once_and_is_written_later(era: Era) {
    let (rig, redis) = rig(era).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    rig.upstream.until_started("held").await;
    redis.freeze();
    let stranger = client.clone().named("Bearer eve");
    let refused = stranger.cancel(&task).await;
    assert_eq!(refused.refusal(), AWAY);
    assert_eq!(rig.upstream.tally("held").cancelled, 0, "it is not eve's");
    let cancelled = client.cancel(&task);
    let told = rig
        .upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1);
    let ((), refused) = tokio::join!(told, cancelled);
    assert_eq!(refused.refusal(), AWAY);
    redis.thaw();
    client.until(&task, "cancelled").await;
}

async fn what_ends_meanwhile_is_written_later(era: Era) {
    let (rig, redis) = rig(era).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    rig.upstream.until_started("held").await;
    redis.freeze();
    rig.upstream.release("held");
    rig.upstream
        .until("held", "finished", |tally| tally.finished == 1)
        .await;
    assert_eq!(
        client.asking("tasks/get", &task).send().await.refusal(),
        AWAY
    );
    redis.thaw();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "released");
    assert_eq!(rig.upstream.tally("held").started, 1);
}

/// A call whose leg has ended with a question that is nowhere else, as the store is away.
async fn asking_nobody() -> (Rig, RedisServer, Task) {
    let redis = RedisServer::start();
    let config = Config::always().redis(&redis.url());
    let config = config.store("read_patience = \"1500ms\"");
    let rig = Rig::start(Era::Modern, config).await;
    let steps = json!({"then": "ask"});
    let task = rig.client().call("steps", steps).await.into_task();
    rig.upstream.until_started("steps").await;
    redis.freeze();
    rig.upstream.release("steps");
    rig.proxy
        .until_said("cannot store the questions of the server; trying again", 1)
        .await;
    (rig, redis, task)
}

#[tokio::test]
async fn what_is_asked_meanwhile_is_asked_later() {
    let (rig, redis, task) = asking_nobody().await;
    let client = rig.client();
    redis.thaw();
    let asks = client.until(&task, "input_required").await;
    let keys = asks["inputRequests"].as_object().unwrap().keys();
    let ada = json!({"action": "accept", "content": {"name": "Ada"}});
    let answers = keys.map(|key| (key.clone(), ada.clone())).collect();
    client.update(&task, answers).await.assert_acknowledged();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
    assert_eq!(rig.upstream.tally("steps").started, 2);
}

#[tokio::test]
async fn what_is_asked_meanwhile_may_be_cancelled() {
    let (rig, redis, task) = asking_nobody().await;
    let client = rig.client();
    assert_eq!(client.cancel(&task).await.refusal(), AWAY);
    redis.thaw();
    client.until(&task, "cancelled").await;
}
