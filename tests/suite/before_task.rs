//! Questions before the task: answered in a retry of the call itself.

use serde_json::{Value, json};

use crate::support::client::{Answer, Client, Request};
use crate::support::session::accept;
use crate::support::shape::{assert_created, assert_questions, assert_state};
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    the_question_comes_first_and_its_answer_makes_the_task,
    a_client_without_tasks_gets_the_plain_result_at_the_end,
    a_client_without_tasks_is_asked_by_retry_whatever_the_rule,
    two_questions_are_asked_in_one_round,
    a_call_that_asks_nothing_becomes_a_task_after_the_window,
);

fn config() -> Config {
    Config::always().terms("input = \"before_task\"\ngrace_window = \"5s\"")
}

/// The first round: a question and a state to come back with, and no task.
#[track_caller]
fn round(answer: Answer) -> Value {
    let result = answer.into_result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    assert!(result.get("taskId").is_none(), "{result}");
    assert!(result["requestState"].is_string(), "{result}");
    assert_questions(&result["inputRequests"]);
    result
}

/// The same call again with this answer to everything that was asked.
fn retry(client: &Client, tool: &str, round: &Value, name: &str) -> Request {
    let keys = round["inputRequests"].as_object().unwrap().keys();
    let answers: Value = keys.map(|key| (key.clone(), accept(name))).collect();
    let state = round["requestState"].clone();
    client.calling(tool, json!({"nonce": "n"})).edit(|message| {
        message["params"]["inputResponses"] = answers;
        message["params"]["requestState"] = state;
    })
}

async fn the_question_comes_first_and_its_answer_makes_the_task(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client();
    let asked = round(client.call("ask", json!({"nonce": "n"})).await);
    let task = retry(&client, "ask", &asked, "Ada")
        .send()
        .await
        .into_task();
    assert_created(&task.created);
    let state = client.until(&task, "completed").await;
    assert_state(&state, "completed");
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
    let legs = rig.upstream.tally("n").started;
    assert_eq!(legs, if era == Era::Modern { 2 } else { 1 });
}

async fn a_client_without_tasks_gets_the_plain_result_at_the_end(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client().without_tasks();
    let asked = round(client.call("ask", json!({"nonce": "n"})).await);
    let answer = retry(&client, "ask", &asked, "Ada").send().await;
    assert_eq!(answer.into_text(), "Ada");
}

async fn a_client_without_tasks_is_asked_by_retry_whatever_the_rule(era: Era) {
    for config in [Config::always(), Config::auto("20ms"), Config::never()] {
        let rig = Rig::start(era, config).await;
        let client = rig.client().without_tasks();
        let first = round(client.call("ask_twice", json!({"nonce": "n"})).await);
        let second = round(retry(&client, "ask_twice", &first, "one").send().await);
        let answer = retry(&client, "ask_twice", &second, "two").send().await;
        assert_eq!(answer.into_text(), "one and two");
    }
}

async fn two_questions_are_asked_in_one_round(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client();
    let asked = round(client.call("ask_two", json!({"nonce": "n"})).await);
    assert_eq!(asked["inputRequests"].as_object().unwrap().len(), 2);
    let task = retry(&client, "ask_two", &asked, "x")
        .send()
        .await
        .into_task();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "x and x");
}

async fn a_call_that_asks_nothing_becomes_a_task_after_the_window(era: Era) {
    let config = Config::always().terms("input = \"before_task\"\ngrace_window = \"50ms\"");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    assert_created(&task.created);
    rig.upstream.release("held");
    assert_state(&client.until(&task, "completed").await, "completed");
}

/// In front of a modern server the state is the server's own business; in front of a legacy one
/// it is raincheck's.
async fn parked() -> (Rig, Client, Value) {
    let rig = Rig::start(Era::Legacy, config()).await;
    let client = rig.client().named("Bearer alice");
    let asked = round(client.call("ask", json!({"nonce": "n"})).await);
    (rig, client, asked)
}

#[tokio::test]
async fn the_same_retry_again_is_the_same_task() {
    let (_rig, client, asked) = parked().await;
    let retry = retry(&client, "ask", &asked, "Ada");
    let first = retry.clone().send().await.into_task();
    let again = retry.clone().send().await.into_task();
    assert_eq!(first.id, again.id);
    client.until(&first, "completed").await;
    assert_eq!(
        retry.send().await.into_task().id,
        first.id,
        "after its end, too"
    );
}

/// No client finds a task that ended unannounced, so none is promised one.
#[tokio::test]
async fn a_call_that_ended_before_its_task_is_told_as_a_plain_result() {
    let (_rig, client, asked) = parked().await;
    let plain = client.clone().without_tasks();
    let answer = retry(&plain, "ask", &asked, "Ada").send().await;
    assert_eq!(answer.into_text(), "Ada");
    let again = retry(&client, "ask", &asked, "Ada").send().await;
    assert_eq!(again.into_text(), "Ada");
}

#[tokio::test]
async fn another_answer_under_the_same_state_is_refused() {
    let (_rig, client, asked) = parked().await;
    let task = retry(&client, "ask", &asked, "Ada")
        .send()
        .await
        .into_task();
    let other = retry(&client, "ask", &asked, "Eve").send().await;
    assert_eq!(other.refusal(), (400, -32602));
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn a_state_that_is_not_ours_is_refused() {
    let (rig, client, asked) = parked().await;
    let state = asked["requestState"].as_str().unwrap();
    let random = uuid::Uuid::new_v4().to_string();
    let doubled = state.repeat(2);
    for tampered in ["", "nonsense", &state[1..], &random, &doubled] {
        let call = retry(&client, "ask", &asked, "Ada");
        let call = call.edit(|message| message["params"]["requestState"] = json!(tampered));
        assert_eq!(call.send().await.refusal(), (400, -32602), "{tampered}");
    }
    let nobody = retry(&client, "ask", &asked, "Ada").without("authorization");
    assert_eq!(nobody.send().await.refusal(), (400, -32602));
    let other = retry(&client.clone().named("Bearer eve"), "ask", &asked, "Ada");
    assert_eq!(other.send().await.refusal(), (400, -32602));
    assert_eq!(
        rig.upstream.tally("n").running(),
        1,
        "the parked call still waits"
    );
    retry(&client, "ask", &asked, "Ada")
        .send()
        .await
        .into_task();
}

#[tokio::test]
async fn a_state_of_another_call_is_refused() {
    let (_rig, client, asked) = parked().await;
    let other = retry(&client, "ask", &asked, "Ada")
        .edit(|message| message["params"]["arguments"]["nonce"] = json!("other"));
    assert_eq!(other.send().await.refusal(), (400, -32602));
    let other = retry(&client, "ask_two", &asked, "Ada").send().await;
    assert_eq!(other.refusal(), (400, -32602));
}

#[tokio::test]
async fn a_parked_call_is_no_task_before_its_retry() {
    let (_rig, client, asked) = parked().await;
    let id = asked["requestState"].as_str().unwrap();
    let task = crate::support::client::Task::by_id(id);
    for method in ["tasks/get", "tasks/cancel"] {
        let refused = client.asking(method, &task).send().await;
        assert_eq!(refused.refusal(), (400, -32602), "{method}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_its_retry_cancels_the_call() {
    let rig = Rig::start(Era::Legacy, config()).await;
    let client = rig.client().without_tasks();
    let asked = round(client.call("ask_twice", json!({"nonce": "n"})).await);
    let second = round(retry(&client, "ask_twice", &asked, "one").send().await);
    drop(second);
    assert_eq!(rig.upstream.tally("n").running(), 1, "a question may wait");
}
