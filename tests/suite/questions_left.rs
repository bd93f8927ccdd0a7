//! A question that no client answers: told of again, and in the end the rule decides.

use serde_json::{Value, json};

use crate::support::pair::Pair;
use crate::support::shape::assert_state;
use crate::support::{Client, Config, Era, Rig, in_both_eras};

in_both_eras!(
    the_rule_declines_cancels_or_answers,
    an_answer_that_does_not_fit_the_form_fails_the_task,
    a_question_is_told_of_again_until_it_is_answered,
    the_rule_answers_also_after_the_owner_died,
);

/// What the server heard.
async fn ends_with(rig: &Rig) -> Value {
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let state = client.until(&task, "completed").await;
    assert_state(&state, "completed");
    state["result"]["content"][0]["text"].clone()
}

async fn the_rule_declines_cancels_or_answers(era: Era) {
    for (rule, heard) in [
        ("decline", "decline"),
        ("cancel", "cancel"),
        (r#"{\"name\": \"Nobody\"}"#, "Nobody"),
    ] {
        let terms = format!("input_timeout = \"300ms\"\non_input_timeout = \"{rule}\"");
        let rig = Rig::start(era, Config::always().terms(&terms)).await;
        assert_eq!(ends_with(&rig).await, heard, "{rule}");
        let log = rig.proxy.log();
        assert!(log.contains("the rule answered"), "{log}");
    }
}

async fn an_answer_that_does_not_fit_the_form_fails_the_task(era: Era) {
    let terms = "input_timeout = \"300ms\"\non_input_timeout = '{\"age\": 7}'";
    let rig = Rig::start(era, Config::always().terms(terms)).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let state = client.until(&task, "failed").await;
    assert_eq!(state["error"]["data"]["io.raincheck/reason"], "deadline");
}

async fn a_question_is_told_of_again_until_it_is_answered(era: Era) {
    let terms = "input_reminder = \"300ms\"";
    let rig = Rig::start(era, Config::always().terms(terms)).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let is_told =
        |state: &Value| state["statusMessage"] == "The question still waits for an answer";
    let state = client.until_it(&task, "told of again", is_told).await;
    assert_state(&state, "input_required");
    let key = state["inputRequests"].as_object().unwrap().keys().next();
    let answer = json!({key.unwrap(): {"action": "accept", "content": {"name": "Ada"}}});
    client.update(&task, answer).await.assert_acknowledged();
    let state = client.until(&task, "completed").await;
    assert!(state.get("statusMessage").is_none(), "{state}");
    let log = rig.proxy.log();
    let times = log.matches("a question of the server still waits").count();
    assert_eq!(times, 1, "{log}");
}

async fn the_rule_answers_also_after_the_owner_died(era: Era) {
    let terms = "input_timeout = \"2s\"\non_input_timeout = \"decline\"";
    let mut pair = Pair::start(era, terms).await;
    let client = pair.at_a();
    let task = client.call("ask", json!({})).await.into_task();
    client.until(&task, "input_required").await;
    if era == Era::Legacy {
        // Its call is open: another replica has to find the point from which it can be resumed.
        pair.until_resumable(&task).await;
    }
    pair.a.kill();
    let other = Client::of(pair.b.address());
    let state = other.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "decline");
}
