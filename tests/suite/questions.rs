//! What a server asks in the middle of its call, and how the client answers.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::client::{Client, Task};
use crate::support::session::accept;
use crate::support::shape::{assert_questions, assert_state};
use crate::support::upstream::Tally;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    one_question,
    a_question_that_is_declined,
    an_answer_counts_before_it_is_acknowledged,
    two_questions_at_once_answered_one_by_one,
    two_questions_at_once_answered_together,
    two_questions_in_turn_never_share_a_key,
    unknown_and_answered_keys_are_ignored,
    a_misshapen_answer_is_refused_and_nothing_applied,
    answers_that_are_no_object_are_refused,
    a_late_answer_is_acknowledged,
    a_question_ends_the_grace_window,
    the_servers_own_state_stays_private,
);

/// The keys of the open questions.
fn keys(state: &Value) -> Vec<String> {
    state["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

/// Waits for so many questions at once.
async fn asked(client: &Client, task: &Task, count: usize) -> Vec<String> {
    let what = format!("asking {count} at once");
    let all = |state: &Value| {
        state["inputRequests"]
            .as_object()
            .is_some_and(|r| r.len() == count)
    };
    let state = client.until_it(task, &what, all).await;
    assert_state(&state, "input_required");
    keys(&state)
}

async fn answer(client: &Client, task: &Task, key: &str, name: &str) {
    client
        .update(task, json!({key: accept(name)}))
        .await
        .assert_acknowledged();
}

async fn completed(client: &Client, task: &Task) -> String {
    let state = client.until(task, "completed").await;
    assert_state(&state, "completed");
    state["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn one_question(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let keys = asked(&client, &task, 1).await;
    let state = client.get(&task).await;
    assert_eq!(
        state["inputRequests"][&keys[0]]["params"]["message"],
        "Your name?"
    );
    answer(&client, &task, &keys[0], "Ada").await;
    assert_eq!(completed(&client, &task).await, "Ada");
}

async fn a_question_that_is_declined(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    for action in ["decline", "cancel"] {
        let task = client.call("ask", json!({})).await.into_task();
        let keys = asked(&client, &task, 1).await;
        let declined = client
            .update(&task, json!({&keys[0]: {"action": action}}))
            .await;
        declined.assert_acknowledged();
        assert_eq!(completed(&client, &task).await, action);
    }
}

async fn an_answer_counts_before_it_is_acknowledged(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    for _ in 0..10 {
        let task = client.call("ask", json!({})).await.into_task();
        let keys = asked(&client, &task, 1).await;
        answer(&client, &task, &keys[0], "Ada").await;
        let state = client.get(&task).await;
        assert!(state.get("inputRequests").is_none(), "asked again: {state}");
    }
}

async fn two_questions_at_once_answered_one_by_one(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask_two", json!({})).await.into_task();
    let both = asked(&client, &task, 2).await;
    answer(&client, &task, &both[0], "one").await;
    let state = client.get(&task).await;
    assert_state(&state, "input_required");
    assert_eq!(keys(&state), both[1..], "the answered one is gone at once");
    answer(&client, &task, &both[1], "two").await;
    assert_eq!(completed(&client, &task).await, "one and two");
    let legs = rig.upstream.tally("ask_two").started;
    assert_eq!(
        legs,
        if era == Era::Modern { 2 } else { 1 },
        "one retry with all answers"
    );
}

async fn two_questions_at_once_answered_together(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask_two", json!({})).await.into_task();
    let both = asked(&client, &task, 2).await;
    let answers = json!({&both[0]: accept("one"), &both[1]: accept("two")});
    client.update(&task, answers).await.assert_acknowledged();
    assert_eq!(completed(&client, &task).await, "one and two");
}

async fn two_questions_in_turn_never_share_a_key(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask_twice", json!({})).await.into_task();
    let first = asked(&client, &task, 1).await;
    answer(&client, &task, &first[0], "one").await;
    let second = asked(&client, &task, 1).await;
    assert_ne!(first, second, "a key is unique for the life of a task");
    // Naming the first question again answers nothing.
    answer(&client, &task, &first[0], "again").await;
    assert_eq!(asked(&client, &task, 1).await, second);
    answer(&client, &task, &second[0], "two").await;
    assert_eq!(completed(&client, &task).await, "one and two");
}

async fn unknown_and_answered_keys_are_ignored(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask_two", json!({})).await.into_task();
    let both = asked(&client, &task, 2).await;
    for ignored in [
        json!({}),
        json!({"unknown": accept("x")}),
        json!({"unknown": 7}),
    ] {
        client.update(&task, ignored).await.assert_acknowledged();
        assert_eq!(keys(&client.get(&task).await), both);
    }
    answer(&client, &task, &both[0], "one").await;
    let again = json!({&both[0]: accept("other"), "unknown": accept("x"), &both[1]: accept("two")});
    client.update(&task, again).await.assert_acknowledged();
    assert_eq!(
        completed(&client, &task).await,
        "one and two",
        "the first answer counts"
    );
}

async fn a_misshapen_answer_is_refused_and_nothing_applied(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask_two", json!({})).await.into_task();
    let both = asked(&client, &task, 2).await;
    let misshapen = [
        json!("Ada"),
        json!(null),
        json!([]),
        json!({}),
        json!({"action": 1}),
        json!({"action": "maybe"}),
        json!({"action": "accept", "content": "Ada"}),
        json!({"action": "accept", "content": ["Ada"]}),
    ];
    for wrong in misshapen {
        let answers = json!({&both[0]: accept("one"), &both[1]: wrong});
        let refused = client.update(&task, answers).await;
        assert_eq!(refused.refusal(), (400, -32602), "{wrong}");
        assert_eq!(keys(&client.get(&task).await), both, "{wrong}");
    }
}

async fn answers_that_are_no_object_are_refused(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    asked(&client, &task, 1).await;
    for wrong in [json!(null), json!([]), json!("x"), json!(1)] {
        assert_eq!(
            client.update(&task, wrong.clone()).await.refusal(),
            (400, -32602),
            "{wrong}"
        );
    }
    let missing = client.asking("tasks/update", &task).send().await;
    assert_eq!(missing.refusal(), (400, -32602));
}

async fn a_late_answer_is_acknowledged(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let keys = asked(&client, &task, 1).await;
    client.cancel(&task).await.assert_acknowledged();
    answer(&client, &task, &keys[0], "late").await;
    assert_state(&client.get(&task).await, "cancelled");
}

async fn a_question_ends_the_grace_window(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let keys = asked(&client, &task, 1).await;
    answer(&client, &task, &keys[0], "Ada").await;
    assert_eq!(completed(&client, &task).await, "Ada");
}

async fn the_servers_own_state_stays_private(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let call = client.call("ask", json!({})).await;
    assert!(!call.text.contains("requestState"), "{}", call.text);
    let task = call.into_task();
    asked(&client, &task, 1).await;
    let state = client.asking("tasks/get", &task).send().await;
    assert!(!state.text.contains("requestState"), "{}", state.text);
    assert_questions(&state.json()["result"]["inputRequests"]);
}

#[tokio::test]
async fn a_server_that_wants_to_be_called_again_is_given_time() {
    for config in [Config::always(), Config::auto("10s")] {
        let rig = Rig::start(Era::Modern, config).await;
        let client = rig.client();
        let begun = Instant::now();
        let call = client.call("come_back", json!({"times": 2})).await;
        let task = call.into_task();
        assert_eq!(completed(&client, &task).await, "here");
        assert_eq!(rig.upstream.tally("come_back").started, 3);
        let passed = begun.elapsed();
        assert!(
            passed >= Duration::from_secs(3),
            "a second, then two: {passed:?}"
        );
    }
}

#[tokio::test]
async fn a_call_is_cancelled_before_its_server_is_called_again() {
    let config = Config::always().section("upstream", "concurrency = 1");
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    let task = client.call("come_back", json!({"times": 100})).await;
    let task = task.into_task();
    let came_back = |tally: Tally| tally.asked == 1;
    rig.upstream.until("come_back", "asked", came_back).await;
    client.cancel(&task).await.assert_acknowledged();
    assert_state(&client.get(&task).await, "cancelled");
    // Its place is free.
    let next = client.call("ask", json!({})).await.into_task();
    asked(&client, &next, 1).await;
}
