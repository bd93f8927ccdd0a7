//! A replica dies in the middle of calls, and another one carries on.

use serde_json::{Value, json};

use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::session::accept;
use crate::support::shape::assert_state;
use crate::support::{Client, Config, Era, Upstream, in_both_eras};

#[tokio::test]
async fn a_call_on_a_resumable_stream_is_carried_on_and_runs_once() {
    let mut pair = Pair::start(Era::Legacy, "").await;
    let steps = json!({"n": 2});
    let task = pair.at_a().call("steps", steps).await.into_task();
    pair.at_a()
        .until_it(&task, "at step 2", |state| {
            state["statusMessage"] == "step 2"
        })
        .await;
    pair.a.kill();
    // The owner's lease ends, and the answer is fetched by the other.
    pair.upstream.release("steps");
    let state = pair.at_b().until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "stepped");
    assert_eq!(pair.upstream.tally("steps").started, 1);
    // One line says what was done, and for which tool.
    let log = pair.b.log();
    let of_task: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("lost owner"))
        .collect();
    assert!(
        of_task.len() == 1 && of_task[0].contains("tool=steps"),
        "{of_task:?}"
    );
}

#[tokio::test]
async fn a_question_outlives_the_replica_that_heard_it() {
    for answered_before in [false, true] {
        let mut pair = Pair::start(Era::Legacy, "").await;
        let task = pair.at_a().call("ask_twice", json!({})).await.into_task();
        let asked = pair.at_a().until(&task, "input_required").await;
        let first = key(&asked);
        if answered_before {
            let answer = json!({(first.clone()): accept("ann")});
            pair.at_a()
                .update(&task, answer)
                .await
                .assert_acknowledged();
            pair.at_a()
                .until_it(&task, "asking again", |state| {
                    state["inputRequests"].is_object() && key(state) != first
                })
                .await;
        }
        pair.until_resumable(&task).await;
        pair.a.kill();
        let client = pair.at_b();
        let mut names = vec!["bob", "ann"];
        if answered_before {
            names.pop();
        }
        while let Some(name) = names.pop() {
            let asked = client.until(&task, "input_required").await;
            let answer = json!({(key(&asked)): accept(name)});
            client.update(&task, answer).await.assert_acknowledged();
            let next = client.until_it(&task, "going on", |state| {
                state["status"] == "completed"
                    || (state["inputRequests"].is_object() && key(state) != key(&asked))
            });
            next.await;
        }
        let state = client.until(&task, "completed").await;
        assert_eq!(state["result"]["content"][0]["text"], "ann and bob");
        assert_eq!(pair.upstream.tally("ask_twice").started, 1);
    }
}

/// The request is stored as soon as another replica may send it, and not before.
#[tokio::test]
async fn a_round_of_questions_outlives_its_replica_with_its_request() {
    let shared = |config: Config| config.section("upstream", "shared = true");
    let mut pair = Pair::with(Era::Modern, "", shared).await;
    pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    assert_eq!(stored_requests(&pair).await, 0);
    let task = pair.at_a().call("ask_twice", json!({})).await.into_task();
    pair.at_a().until(&task, "input_required").await;
    assert_eq!(stored_requests(&pair).await, 1);
    pair.a.kill();
    let client = pair.at_b();
    for name in ["ann", "bob"] {
        let asked = client.until(&task, "input_required").await;
        let answer = json!({(key(&asked)): accept(name)});
        client.update(&task, answer).await.assert_acknowledged();
        let next = client.until_it(&task, "going on", |state| {
            state["status"] == "completed"
                || (state["inputRequests"].is_object() && key(state) != key(&asked))
        });
        next.await;
    }
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "ann and bob");
}

async fn stored_requests(pair: &Pair) -> usize {
    let mut find = redis::cmd("KEYS");
    find.arg("*:q:*");
    let found = find.query_async(&mut pair.connect().await).await;
    let keys: Vec<String> = found.unwrap();
    keys.len()
}

fn key(state: &Value) -> String {
    let requests = state["inputRequests"].as_object().unwrap();
    requests.keys().next().unwrap().clone()
}

#[tokio::test]
async fn without_a_seal_key_nobody_carries_on() {
    let mut pair = Pair::with(Era::Legacy, "", |config| {
        config.section("upstream", "shared = true")
    })
    .await;
    let task = pair.at_a().call("steps", json!({"n": 1})).await.into_task();
    pair.at_a()
        .until_it(&task, "at step 1", |state| {
            state["statusMessage"] == "step 1"
        })
        .await;
    pair.a.kill();
    let state = pair.at_b().until(&task, "failed").await;
    assert_lost(&state);
    assert_eq!(pair.upstream.tally("steps").started, 1);
}

in_both_eras!(
    what_is_safe_to_repeat_is_run_again,
    what_the_operator_says_must_fail_fails,
    a_frozen_owner_that_wakes_up_changes_nothing,
    a_stop_leaves_to_others_what_they_can_carry_on,
    a_call_that_keeps_taking_its_owner_down_is_given_up,
);

async fn what_is_safe_to_repeat_is_run_again(era: Era) {
    let terms = "on_owner_lost = \"rerun\"";
    let mut pair = Pair::with(era, terms, |config| {
        config.section("upstream", "shared = false")
    })
    .await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    pair.a.kill();
    pair.upstream
        .until("held", "run again", |tally| tally.started == 2)
        .await;
    pair.upstream.release("held");
    let state = pair.at_b().until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "released");
    assert_eq!(pair.upstream.tally("held").started, 2);
}

async fn what_the_operator_says_must_fail_fails(era: Era) {
    let mut pair = Pair::start(era, "on_owner_lost = \"fail\"").await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    pair.a.kill();
    assert_lost(&pair.at_b().until(&task, "failed").await);
    assert_eq!(pair.upstream.tally("held").started, 1);
}

/// The owner is stopped for longer than its lease; meanwhile its task ends. What it does when it
/// goes on changes nothing, and its call is cancelled.
async fn a_frozen_owner_that_wakes_up_changes_nothing(era: Era) {
    let pair = Pair::start(era, "on_owner_lost = \"fail\"").await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    pair.a.freeze();
    let lost = pair.at_b().until(&task, "failed").await;
    assert_lost(&lost);
    pair.a.thaw();
    pair.upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1)
        .await;
    assert_eq!(pair.at_a().get(&task).await, pair.at_b().get(&task).await);
    assert_eq!(
        pair.at_b().get(&task).await["lastUpdatedAt"],
        lost["lastUpdatedAt"]
    );
}

async fn a_stop_leaves_to_others_what_they_can_carry_on(era: Era) {
    let terms = match era {
        Era::Legacy => "",
        Era::Modern => "on_owner_lost = \"rerun\"",
    };
    let mut pair = Pair::with(era, terms, |config| {
        config
            .section("upstream", "shared = true")
            .section("drain", "grace = \"2s\"")
            .store(&format!("seal_key = {SEAL_KEY:?}"))
    })
    .await;
    let task = pair.at_a().call("steps", json!({"n": 1})).await.into_task();
    pair.at_a()
        .until_it(&task, "at step 1", |state| {
            state["statusMessage"] == "step 1"
        })
        .await;
    assert!(pair.a.stop().await.success());
    pair.upstream.release("steps");
    let state = pair.at_b().until(&task, "completed").await;
    assert_state(&state, "completed");
    let runs = match era {
        Era::Legacy => 1,
        Era::Modern => 2,
    };
    assert_eq!(pair.upstream.tally("steps").started, runs);
}

/// Two more runs, and no third.
async fn a_call_that_keeps_taking_its_owner_down_is_given_up(era: Era) {
    let mut pair = Pair::with(era, "on_owner_lost = \"rerun\"", |config| {
        config.section("upstream", "shared = false")
    })
    .await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    for runs in 1..=3 {
        pair.upstream
            .until("held", "running", |tally| tally.started == runs)
            .await;
        // Whichever of the two it was.
        pair.a.kill();
        pair.b.kill();
        pair.a.restart().await;
        pair.b.restart().await;
    }
    assert_lost(&pair.at_b().until(&task, "failed").await);
    assert_eq!(pair.upstream.tally("held").started, 3);
}

/// A restart of the one process over its file: the call that still runs is found again.
#[tokio::test]
async fn a_file_remembers_where_to_carry_on() {
    let upstream = Upstream::start(Era::Legacy).await;
    upstream.keep_events();
    let mut proxy = Config::always().embedded().start(&upstream.url()).await;
    let client = Client::of(proxy.address());
    let task = client.call("steps", json!({"n": 1})).await.into_task();
    client
        .until_it(&task, "at step 1", |state| {
            state["statusMessage"] == "step 1"
        })
        .await;
    proxy.kill();
    proxy.restart().await;
    upstream.release("steps");
    let client = client.at(proxy.address());
    client.until(&task, "completed").await;
    assert_eq!(upstream.tally("steps").started, 1);
}

#[track_caller]
fn assert_lost(state: &Value) {
    assert_state(state, "failed");
    let data = &state["error"]["data"];
    assert_eq!(data["io.raincheck/reason"], "owner_lost", "{state}");
    assert_eq!(data["io.raincheck/effect"], "unknown", "{state}");
}

/// The server's own word for it counts only where the operator says so.
#[tokio::test]
async fn what_a_trusted_server_calls_read_only_is_run_again() {
    for trusted in [true, false] {
        let mut pair = Pair::with(Era::Modern, "", |config| {
            config.section("upstream", &format!("trust_annotations = {trusted}"))
        })
        .await;
        let task = pair.at_a().call("look", json!({})).await.into_task();
        pair.upstream.until_started("look").await;
        pair.a.kill();
        pair.upstream.release("look");
        if trusted {
            pair.at_b().until(&task, "completed").await;
        } else {
            assert_lost(&pair.at_b().until(&task, "failed").await);
        }
        let runs = pair.upstream.tally("look").started;
        assert_eq!(runs, if trusted { 2 } else { 1 });
    }
}
