//! Keys and identical calls in stores that are shared or come back.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::redis_server::RedisServer;
use crate::support::client::{Client, Request};
use crate::support::pair::Pair;
use crate::support::{Config, Era, PATIENCE, Rig, eventually, in_both_eras};

in_both_eras!(
    a_key_is_the_same_on_every_replica,
    an_identical_call_is_attached_on_every_replica,
    a_key_survives_a_restart,
    a_key_is_taken_when_the_store_is_back,
);

fn held(client: &Client) -> Request {
    let call = client.calling("held", json!({}));
    call.header("idempotency-key", "k")
}

async fn a_key_is_the_same_on_every_replica(era: Era) {
    let pair = Pair::start(era, "").await;
    let clients = [pair.at_a(), pair.at_b(), pair.at_a(), pair.at_b()];
    let calls = join_all(clients.iter().map(|client| held(client).send())).await;
    let tasks: Vec<_> = calls.into_iter().map(|call| call.into_task()).collect();
    assert!(tasks.iter().all(|task| task.id == tasks[0].id));
    let plain = pair.at_b().without_tasks();
    let plain = tokio::spawn(held(&plain).send());
    pair.upstream.until_started("held").await;
    pair.upstream.release("held");
    assert_eq!(plain.await.unwrap().into_text(), "released");
    let again = held(&pair.at_b().without_tasks()).send().await;
    assert_eq!(again.into_text(), "released");
    assert_eq!(pair.upstream.tally("held").started, 1);
}

async fn an_identical_call_is_attached_on_every_replica(era: Era) {
    let terms = "attach = true\nattach_window = \"500ms\"";
    let pair = Pair::start(era, terms).await;
    let call = |client: Client, nonce: &str| {
        let client = client.without_tasks().named("Bearer ann");
        client.calling("held", json!({"nonce": nonce})).send()
    };
    let leaves = tokio::spawn(call(pair.at_a(), "a"));
    pair.upstream.until_started("a").await;
    let stays = tokio::spawn(call(pair.at_b(), "a"));
    // Ended after what was left before it: by then the window of the first has passed, too.
    let left = tokio::spawn(call(pair.at_b(), "b"));
    pair.upstream.until_started("b").await;
    for gone in [leaves, left] {
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
    }
    pair.upstream
        .until("b", "cancelled", |tally| tally.cancelled == 1)
        .await;
    pair.upstream.release("a");
    assert_eq!(stays.await.unwrap().into_text(), "released");
    let tally = pair.upstream.tally("a");
    assert_eq!((tally.started, tally.cancelled), (1, 0));
}

async fn a_key_survives_a_restart(era: Era) {
    let mut rig = Rig::start(era, Config::never().embedded()).await;
    let call = |client: &Client, text: &str| {
        let call = client.calling("echo", json!({"text": text}));
        call.header("idempotency-key", "k").send()
    };
    let client = rig.client();
    let before: Value = call(&client, "a").await.into_result();
    rig.proxy.kill();
    rig.proxy.restart().await;
    let client = client.at(rig.proxy.address());
    // The server is known again.
    client.call("slow", json!({})).await.into_text();
    assert_eq!(call(&client, "a").await.into_result(), before);
    assert_eq!(call(&client, "b").await.refusal(), (400, -32602));
    assert_eq!(rig.upstream.tally("echo").started, 1);
}

async fn a_key_is_taken_when_the_store_is_back(era: Era) {
    let mut redis = RedisServer::start();
    let rig = Rig::start(era, Config::always().redis(&redis.url())).await;
    let client = rig.client();
    client.call("slow", json!({})).await.into_task();
    redis.kill();
    assert_eq!(held(&client).send().await.refusal(), (503, -32603));
    assert_eq!(rig.upstream.tally("held").started, 0);
    redis.restart();
    let again = async || held(&client).send().await.of_status(200);
    let task = eventually(PATIENCE, "keys are taken again", again).await;
    let task = task.into_task();
    assert_eq!(held(&client).send().await.into_task().id, task.id);
    rig.upstream.until_started("held").await;
    assert_eq!(rig.upstream.tally("held").started, 1);
}
