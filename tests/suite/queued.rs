//! What becomes of a call that waits for its turn when its replica, or the store, goes away.

use serde_json::{Value, json};

use crate::support::client::Task;
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::{Config, Era, PATIENCE, in_both_eras};

in_both_eras!(
    a_queued_call_of_a_lost_owner_has_no_effect,
    a_queued_call_that_is_safe_to_repeat_runs_elsewhere_once,
    a_drain_hands_over_what_waits,
    a_drain_hands_over_what_waits_when_the_store_is_back,
    a_drain_hands_over_many_at_once,
    a_store_that_is_away_holds_back_what_has_its_turn,
);

/// One place at each replica, and A's is taken.
async fn pair(era: Era, terms: &str) -> (Pair, Task) {
    with_grace(era, terms, "4s").await
}

async fn with_grace(era: Era, terms: &str, grace: &str) -> (Pair, Task) {
    let pair = Pair::with(era, terms, |config: Config| {
        config
            .section("upstream", "concurrency = 1\nshared = true")
            .section("drain", &format!("grace = {grace:?}"))
    })
    .await;
    pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    let waits = pair.at_a().call("echo", json!({"text": "x"})).await;
    (pair, waits.into_task())
}

async fn a_queued_call_of_a_lost_owner_has_no_effect(era: Era) {
    let (mut pair, waits) = pair(era, "").await;
    pair.a.kill();
    let state = pair.at_b().until(&waits, "failed").await;
    assert_eq!(state["error"]["data"]["io.raincheck/reason"], "owner_lost");
    assert_eq!(state["error"]["data"]["io.raincheck/effect"], "none");
    assert_eq!(pair.upstream.tally("echo").started, 0);
}

/// And waits there, too, if it must.
async fn a_queued_call_that_is_safe_to_repeat_runs_elsewhere_once(era: Era) {
    let (mut pair, waits) = pair(era, "on_owner_lost = \"rerun\"").await;
    let nonce = json!({"nonce": "at b"});
    let at_b = pair.at_b().call("held", nonce).await.into_task();
    pair.upstream.until_started("at b").await;
    pair.a.kill();
    // It is one of two now: the call that ran at A is run again, too.
    pair.until_record(PATIENCE, &waits, "it is of B", "\"owner\":\"b/")
        .await;
    pair.at_b().until_it(&waits, "waiting", says_so).await;
    assert_eq!(pair.upstream.tally("echo").started, 0);
    pair.upstream.release("at b");
    pair.upstream.release("held");
    pair.at_b().until(&at_b, "completed").await;
    pair.at_b().until(&waits, "completed").await;
    assert_eq!(pair.upstream.tally("echo").started, 1);
}

async fn a_drain_hands_over_what_waits(era: Era) {
    let (mut pair, waits) = pair(era, "").await;
    assert!(pair.a.stop().await.success());
    let state = pair.at_b().until(&waits, "completed").await;
    assert!(state.get("statusMessage").is_none(), "{state}");
    assert_eq!(pair.upstream.tally("echo").started, 1);
}

async fn a_drain_hands_over_what_waits_when_the_store_is_back(era: Era) {
    let (mut pair, waits) = with_grace(era, "", "12s").await;
    pair.redis.freeze();
    pair.a.terminate();
    pair.a
        .until_said("is not yet left to other replicas", 1)
        .await;
    pair.redis.thaw();
    pair.at_b().until(&waits, "completed").await;
    assert_eq!(pair.upstream.tally("echo").started, 1);
    pair.a.kill();
}

/// While the draining replica still waits for the call that runs there.
async fn a_drain_hands_over_many_at_once(era: Era) {
    let (mut pair, first) = with_grace(era, "", "20s").await;
    let client = pair.at_a();
    let mut waiting = vec![first];
    for _ in 1..50 {
        let call = client.call("echo", json!({"text": "x"}));
        waiting.push(call.await.into_task());
    }
    pair.a.terminate();
    for task in &waiting {
        pair.at_b().until(task, "completed").await;
    }
    assert_eq!(pair.upstream.tally("echo").started, 50);
    assert!(pair.a.is_running(), "it waits for the call that runs there");
    pair.upstream.release("held");
    assert!(pair.a.ended().await.success());
    assert_eq!(pair.upstream.tally("echo").started, 50);
}

/// Nobody else is there during the drain, which lasts until the draining replica has gone through
/// its own index.
#[tokio::test]
async fn a_drain_leaves_alone_what_it_handed_over() {
    let (mut pair, waits) = with_grace(Era::Legacy, "", "20s").await;
    pair.b.freeze();
    assert!(pair.a.stop().await.success());
    assert!(pair.record(&waits).await.contains("\"released\":true"));
    pair.b.thaw();
    pair.at_b().until(&waits, "completed").await;
    assert_eq!(pair.upstream.tally("echo").started, 1);
}

/// What was carried on elsewhere and is run again there is one more call there.
#[tokio::test]
async fn a_call_that_is_run_again_by_another_replica_waits_for_its_place() {
    let mut pair = Pair::with(
        Era::Legacy,
        "on_owner_lost = \"rerun\"",
        |config: Config| {
            config
                .section("upstream", "concurrency = 1\nshared = true")
                .store(&format!("seal_key = {SEAL_KEY:?}"))
        },
    )
    .await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.until_resumable(&task).await;
    let at_b = json!({"nonce": "at b"});
    let at_b = pair.at_b().call("held", at_b).await.into_task();
    pair.upstream.until_started("at b").await;
    pair.upstream.forget_sessions();
    pair.a.kill();
    pair.at_b().until_it(&task, "waiting", says_so).await;
    assert_eq!(pair.upstream.tally("held").started, 1);
    pair.upstream.release("at b");
    pair.at_b().until(&at_b, "completed").await;
    pair.upstream
        .until("held", "run again", |tally| tally.started == 2)
        .await;
    pair.upstream.release("held");
    pair.at_b().until(&task, "completed").await;
}

fn says_so(state: &Value) -> bool {
    let said = state["statusMessage"].as_str().unwrap_or_default();
    said.starts_with("Waiting for a free place")
}

/// It is sent when the store has taken that it is sent, and once.
async fn a_store_that_is_away_holds_back_what_has_its_turn(era: Era) {
    let (mut pair, waits) = pair(era, "").await;
    pair.redis.freeze();
    pair.upstream.release("held");
    pair.upstream
        .until("held", "ended", |tally| tally.finished == 1)
        .await;
    // Others need no store: they have the place meanwhile.
    let plain = pair.at_a().without_tasks();
    plain.call("fail", json!({})).await.into_result();
    assert_eq!(pair.upstream.tally("echo").started, 0);
    pair.redis.thaw();
    pair.at_a().until(&waits, "completed").await;
    assert_eq!(pair.upstream.tally("echo").started, 1);
    pair.a.kill();
}
