//! So many calls at the server at once; the others wait for their turn, and a full queue refuses.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::client::Task;
use crate::support::shape::assert_state;
use crate::support::{Client, Config, Era, PATIENCE, Rig, eventually, in_both_eras, within};

in_both_eras!(
    never_more_run_than_may,
    the_first_that_came_goes_first_and_pollers_hear_of_the_queue,
    what_is_cancelled_while_it_waits_never_reaches_the_server,
    a_deadline_while_it_waits_is_without_effect,
    a_full_queue_refuses_and_nothing_is_kept,
    a_call_that_waits_longer_than_the_grace_window_becomes_a_task,
    a_client_without_tasks_waits_on_its_connection,
    no_place_is_lost_in_hundreds_of_mixed_ends,
);

/// The one place is taken by `held` until it is released, and this one waits.
const NEXT: &str = "Waiting for a free place; it is the next";

fn nonce(name: &str) -> Value {
    json!({"nonce": name})
}

/// A task that runs until it is released, with whatever waits behind it.
async fn occupied(rig: &Rig) -> Task {
    let task = rig.client().call("held", nonce("first")).await.into_task();
    rig.upstream.until_started("first").await;
    task
}

/// The calls in the order in which they reached the server.
fn arrived(rig: &Rig) -> Vec<String> {
    let calls = rig.upstream.requests("tools/call");
    calls
        .iter()
        .map(|call| {
            let arguments = &call.json()["params"]["arguments"];
            arguments["nonce"].as_str().unwrap_or_default().to_owned()
        })
        .collect()
}

async fn never_more_run_than_may(era: Era) {
    let limits = [
        Config::always().terms("concurrency = 2"),
        Config::auto("20ms").section("upstream", "concurrency = 2"),
        Config::always()
            .section("upstream", "concurrency = 3")
            .tool("[sw]*", "concurrency = 2"),
    ];
    for config in limits {
        let rig = Rig::start(era, config).await;
        let calls = (0..12).map(|number| {
            let mut client = rig.client();
            if number % 3 == 0 {
                client = client.without_tasks();
            }
            async move {
                let answer = client.call("slow", json!({"ms": 20})).await;
                if answer.json()["result"]["resultType"] == "task" {
                    client.until(&answer.into_task(), "completed").await;
                } else {
                    assert_eq!(answer.into_text(), "slept");
                }
            }
        });
        within(PATIENCE * 2, "all had their turn", join_all(calls)).await;
        assert_eq!(rig.upstream.tally("slow").finished, 12);
        assert_eq!(rig.upstream.peak(), 2);
    }
}

async fn the_first_that_came_goes_first_and_pollers_hear_of_the_queue(era: Era) {
    let rig = Rig::start(era, Config::always().terms("concurrency = 1")).await;
    let client = rig.client();
    let first = occupied(&rig).await;
    assert!(first.created.get("statusMessage").is_none());
    let mut queue = Vec::new();
    let said = [
        NEXT,
        "Waiting for a free place; 1 call is before it",
        "Waiting for a free place; 2 calls are before it",
    ];
    for (name, said) in ["a", "b", "c"].into_iter().zip(said) {
        let task = client.call("held", nonce(name)).await.into_task();
        assert_eq!(task.created["statusMessage"], said);
        let state = client.get(&task).await;
        assert_state(&state, "working");
        assert_eq!(state["statusMessage"], said);
        queue.push((name, task));
    }
    assert_eq!(arrived(&rig), ["first"]);
    rig.upstream.release("first");
    client.until(&first, "completed").await;
    for (place, (name, task)) in queue.iter().enumerate() {
        rig.upstream.until_started(name).await;
        let runs = |state: &Value| state.get("statusMessage").is_none();
        client.until_it(task, "said to run", runs).await;
        if let Some((_, next)) = queue.get(place + 1) {
            let is_next = |state: &Value| state["statusMessage"] == NEXT;
            client.until_it(next, "the next", is_next).await;
        }
        rig.upstream.release(name);
        client.until(task, "completed").await;
    }
    assert_eq!(arrived(&rig), ["first", "a", "b", "c"]);
}

async fn what_is_cancelled_while_it_waits_never_reaches_the_server(era: Era) {
    let rig = Rig::start(era, Config::always().terms("concurrency = 1")).await;
    let client = rig.client();
    occupied(&rig).await;
    let waits = client.call("held", nonce("waits")).await.into_task();
    let last = client.call("held", nonce("last")).await.into_task();
    client.cancel(&waits).await.assert_acknowledged();
    assert_state(&client.get(&waits).await, "cancelled");
    let is_next = |state: &Value| state["statusMessage"] == NEXT;
    client.until_it(&last, "the next", is_next).await;
    rig.upstream.release("first");
    rig.upstream.until_started("last").await;
    rig.upstream.release("last");
    client.until(&last, "completed").await;
    assert_eq!(arrived(&rig), ["first", "last"]);
}

async fn a_deadline_while_it_waits_is_without_effect(era: Era) {
    let config = Config::always()
        .section("upstream", "concurrency = 1")
        .tool("echo", "max_duration = \"300ms\"");
    let rig = Rig::start(era, config).await;
    occupied(&rig).await;
    let task = rig.client().call("echo", json!({})).await.into_task();
    let state = rig.client().until(&task, "failed").await;
    assert_not_run(&state["error"], "deadline");
    let held = rig.client().without_tasks();
    let refused = held.call("echo", json!({})).await;
    assert_eq!(refused.refusal(), (200, -32603));
    assert_not_run(&refused.json()["error"], "deadline");
    assert_eq!(rig.upstream.tally("echo").started, 0);
}

#[track_caller]
fn assert_not_run(error: &Value, reason: &str) {
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(error["data"]["io.raincheck/reason"], reason, "{error}");
    assert_eq!(error["data"]["io.raincheck/effect"], "none", "{error}");
}

async fn a_full_queue_refuses_and_nothing_is_kept(era: Era) {
    let redis = crate::redis_server::RedisServer::start();
    let config = Config::always()
        .tool("held", "concurrency = 1\nqueue = 1")
        .redis(&redis.url());
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let first = occupied(&rig).await;
    let waits = client.call("held", nonce("waits")).await.into_task();
    for client in [client.clone(), client.clone().without_tasks()] {
        let refused = client.call("held", nonce("refused")).await;
        assert_eq!(refused.refusal(), (503, -32603));
        assert_not_run(&refused.json()["error"], "queue_full");
    }
    let mut connection = redis::Client::open(redis.url())
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap();
    let mut keys = redis::cmd("KEYS");
    keys.arg("{suite:00}:t:*");
    let kept: Vec<String> = keys.query_async(&mut connection).await.unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    // Another tool has places.
    let other = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&other, "completed").await;
    // And so has this one, once a call has ended.
    rig.upstream.release("first");
    client.until(&first, "completed").await;
    rig.upstream.until_started("waits").await;
    client.call("held", nonce("later")).await.into_task();
    rig.upstream.release("waits");
    client.until(&waits, "completed").await;
    rig.upstream.until_started("later").await;
    assert_eq!(rig.upstream.tally("refused").started, 0);
}

async fn a_call_that_waits_longer_than_the_grace_window_becomes_a_task(era: Era) {
    let config = Config::auto("100ms").terms("concurrency = 1");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    occupied(&rig).await;
    let task = client.call("held", nonce("waits")).await.into_task();
    assert_eq!(task.created["statusMessage"], NEXT);
    assert_eq!(rig.upstream.tally("waits").started, 0);
    rig.upstream.release("waits");
    rig.upstream.release("first");
    let state = client.until(&task, "completed").await;
    assert!(state.get("statusMessage").is_none(), "{state}");
    assert_eq!(rig.upstream.tally("waits").started, 1);
}

async fn a_client_without_tasks_waits_on_its_connection(era: Era) {
    let config = Config::always().section("upstream", "concurrency = 1\nqueue = 2");
    let rig = Rig::start(era, config).await;
    occupied(&rig).await;
    let client = rig.client().without_tasks();
    let waits = tokio::spawn({
        let client = client.clone();
        async move { client.call("echo", json!({"text": "x"})).await }
    });
    // A call whose client hangs up leaves the queue, and nothing of it was sent.
    let hung_up = client.calling("slow", json!({"ms": 0}));
    let hung_up = hung_up.or_hang_up_after(Duration::from_millis(200)).await;
    assert!(hung_up.is_none() && !waits.is_finished());
    assert_eq!(rig.upstream.tally("echo").started, 0);
    // The two fill the queue: there is room again when the one has left it.
    let room = async || {
        let answer = rig.client().call("work", nonce("room")).await;
        (answer.status != 503).then_some(answer)
    };
    let task = eventually(PATIENCE, "it has left", room).await.into_task();
    rig.client().cancel(&task).await.assert_acknowledged();
    rig.upstream.release("first");
    let answer = within(PATIENCE, "its turn", waits).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(rig.upstream.tally("slow").started, 0);
}

async fn no_place_is_lost_in_hundreds_of_mixed_ends(era: Era) {
    // Of all tools together.
    let config = Config::auto("5ms").tool("*", "concurrency = 4\nqueue = 40");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    for round in 0..6 {
        let calls = (0..50_usize).map(|number| one_end(&rig, round * 50 + number));
        within(PATIENCE * 2, "all came to an end", join_all(calls)).await;
    }
    rig.upstream.until_idle().await;
    let mut last = Vec::new();
    for name in ["1", "2", "3", "4", "5"] {
        last.push(client.call("held", nonce(name)).await.into_task());
    }
    for name in ["1", "2", "3", "4"] {
        rig.upstream.until_started(name).await;
    }
    assert_eq!(client.get(&last[4]).await["statusMessage"], NEXT);
    assert_eq!(rig.upstream.tally("5").started, 0);
}

/// A result, an error, a cancel or a client that hangs up.
async fn one_end(rig: &Rig, number: usize) {
    let mut client = rig.client();
    if number.is_multiple_of(7) {
        client = client.without_tasks();
    }
    let tools = ["echo", "slow", "fail", "error", "big", "steps", "nobody's"];
    let tool = tools[number % tools.len()];
    let arguments = json!({"ms": number % 11, "bytes": 40_000, "n": 1, "then": "break"});
    rig.upstream.release("steps");
    let call = client.calling(tool, arguments);
    if number.is_multiple_of(5) {
        let patience = Duration::from_millis(u64::try_from(number % 13).unwrap());
        call.or_hang_up_after(patience).await;
        return;
    }
    let answer = call.send().await;
    if answer.json()["result"]["resultType"] == "task" {
        let task = answer.into_task();
        if number.is_multiple_of(4) {
            client.cancel(&task).await.assert_acknowledged();
        }
        let ended = |state: &Value| state["status"] != "working";
        client.until_it(&task, "at its end", ended).await;
    } else if answer.status == 503 {
        assert_not_run(&answer.json()["error"], "queue_full");
    }
}

fn accept(state: &Value) -> Value {
    let keys = state["inputRequests"].as_object().unwrap().keys();
    let accept = json!({"action": "accept", "content": {"name": "ann"}});
    keys.map(|key| (key.clone(), accept.clone())).collect()
}

async fn asking(era: Era) -> (Rig, Client, Task) {
    let rig = Rig::start(era, Config::always().section("upstream", "concurrency = 1")).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    client.until(&task, "input_required").await;
    (rig, client, task)
}

#[tokio::test]
async fn a_modern_call_that_asks_gives_its_place_away_and_waits_for_the_next() {
    let (rig, client, task) = asking(Era::Modern).await;
    let state = client.get(&task).await;
    occupied(&rig).await;
    let update = client.update(&task, accept(&state)).await;
    update.assert_acknowledged();
    let is_next = |state: &Value| state["statusMessage"] == NEXT;
    assert_state(
        &client.until_it(&task, "the next", is_next).await,
        "working",
    );
    assert_eq!(rig.upstream.tally("ask").started, 1);
    rig.upstream.release("first");
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "ann");
    assert_eq!(rig.upstream.tally("ask").started, 2);
}

#[tokio::test]
async fn a_legacy_call_that_asks_is_open_and_keeps_its_place() {
    let (rig, client, task) = asking(Era::Legacy).await;
    let waits = client.call("held", nonce("waits")).await.into_task();
    assert_eq!(waits.created["statusMessage"], NEXT);
    let asked = client.get(&task).await;
    client
        .update(&task, accept(&asked))
        .await
        .assert_acknowledged();
    client.until(&task, "completed").await;
    rig.upstream.until_started("waits").await;
}
