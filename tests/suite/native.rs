//! A modern server that makes tasks of its own: hidden, passed on, or followed.

use serde_json::{Value, json};

use crate::support::shape::{assert_created, assert_state};
use crate::support::{Client, Config, Era, Rig};

const PASS: &str = "native_tasks = \"pass\"";
const THEIRS: &str = "theirs-1";

fn capabilities() -> Value {
    json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

async fn rig(config: Config) -> Rig {
    let rig = Rig::start(Era::Modern, config).await;
    rig.upstream.make_tasks();
    rig
}

async fn ask(client: &Client, method: &str, mut params: Value) -> Value {
    params["taskId"] = json!(THEIRS);
    let answer = client.request(method, params).send().await;
    answer.into_result()
}

#[tokio::test]
async fn a_server_s_tasks_are_hidden_by_default() {
    for config in [Config::never(), Config::auto("10s"), Config::always()] {
        let is_ours = config.text().contains("\"always\"");
        let rig = rig(config).await;
        let answer = rig.client().call("own", json!({})).await;
        if is_ours {
            let state = rig.client().until(&answer.into_task(), "completed").await;
            assert_eq!(state["result"]["content"][0]["text"], "plain");
        } else {
            assert_eq!(answer.into_text(), "plain");
        }
    }
}

#[tokio::test]
async fn its_handles_pass_and_what_is_asked_about_them() {
    for config in [Config::never(), Config::auto("10s")] {
        let rig = rig(config.section("upstream", PASS)).await;
        let client = rig.client().declaring(capabilities());
        let created = client.call("own", json!({})).await.into_result();
        assert_eq!(created["taskId"], THEIRS, "{created}");
        assert_created(&created);
        let state = ask(&client, "tasks/get", json!({})).await;
        assert_eq!(state["statusMessage"], "theirs");
        let answers = json!({"their key": {"action": "accept", "content": {"name": "Ada"}}});
        ask(&client, "tasks/update", json!({"inputResponses": answers})).await;
        let state = ask(&client, "tasks/get", json!({})).await;
        assert_eq!(state["result"]["content"][0]["text"], "\"Ada\"");
        ask(&client, "tasks/cancel", json!({})).await;
        assert_eq!(rig.upstream.tally("their cancel").cancelled, 1);
        // Who declares nothing learns nothing, and who asks for what nobody has hears the server.
        let plain = client.without_tasks().call("own", json!({})).await;
        assert_eq!(plain.into_text(), "plain");
        let params = json!({"taskId": "nobody's"});
        let refused = rig.client().request("tasks/get", params).send().await;
        assert_eq!(refused.json()["error"]["message"], "their unknown task");
    }
}

#[tokio::test]
async fn a_task_that_is_ours_already_stays_ours() {
    // Ours from the beginning: the server hears of no tasks.
    let ours = rig(Config::always().section("upstream", PASS)).await;
    let task = ours.client().call("own", json!({})).await.into_task();
    let state = ours.client().until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "plain");

    // Ours before the server's handle came: it is followed to its end, its question put.
    let terms = "input = \"in_task\"";
    let late = rig(Config::auto("50ms").terms(terms).section("upstream", PASS)).await;
    let client = late.client().declaring(capabilities());
    let task = client.call("own", json!({"ms": 300})).await.into_task();
    let told = |state: &Value| state["statusMessage"] == "theirs";
    client.until_it(&task, "told in their words", told).await;
    let asks = client.until(&task, "input_required").await;
    let key = asks["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let answer = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
    client.update(&task, answer).await.assert_acknowledged();
    let state = client.until(&task, "completed").await;
    assert_state(&state, "completed");
    assert_eq!(state["result"]["content"][0]["text"], "\"Ada\"");
}

#[tokio::test]
async fn a_followed_task_is_cancelled_at_the_server() {
    let late = rig(Config::auto("50ms").section("upstream", PASS)).await;
    let client = late.client().declaring(capabilities());
    let task = client.call("own", json!({"ms": 300})).await.into_task();
    client.until(&task, "input_required").await;
    client.cancel(&task).await.assert_acknowledged();
    client.until(&task, "cancelled").await;
    late.upstream
        .until("their cancel", "cancelled", |tally| tally.cancelled == 1)
        .await;
}
