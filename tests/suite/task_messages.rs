//! The last messages of the server about a running call: for a model that asks how its call stands, and for operators.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::{Config, Era, PATIENCE, Rig, eventually, in_both_eras};

in_both_eras!(
    a_model_sees_the_last_messages_of_its_call,
    operators_see_the_last_messages_if_they_may,
    the_last_words_before_an_end_are_kept,
);

fn config() -> Config {
    let terms = "companion_tools = true\nfallback_after = \"100ms\"";
    Config::auto("10s").terms(terms)
}

fn steps(client: &Client, arguments: Value) -> crate::support::client::Request {
    client.calling("steps", arguments).edit(|message| {
        let meta = &mut message["params"]["_meta"];
        meta["io.modelcontextprotocol/logLevel"] = json!("info");
    })
}

async fn a_model_sees_the_last_messages_of_its_call(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client().without_tasks();
    let given = steps(&client, json!({"n": 30})).send().await.into_result();
    let given = &given["structuredContent"];
    assert!(given.get("messages").is_none(), "a ticket is short");
    let asked = json!({"ticket": given["ticket"], "wait_seconds": 0});
    let status = eventually(PATIENCE, "the last step is told", async || {
        let status = client.call("task_status", asked.clone()).await;
        let status = status.into_result();
        let text = status["content"][0]["text"].as_str().unwrap().to_owned();
        if text.ends_with(" s ago: step 30") {
            return Ok(status);
        }
        Err(text)
    })
    .await;
    let messages = &status["structuredContent"]["messages"];
    let messages = messages.as_array().unwrap();
    assert_eq!(messages.len(), 20, "{status}");
    assert_eq!(messages[0]["text"], "step 11");
    assert!(messages[0]["secondsAgo"].is_u64());
    // The call that waits for the result does not repeat them.
    let waits = client.call("task_result", asked).await.into_result();
    assert!(!waits.to_string().contains("step 29"), "{waits}");
}

async fn operators_see_the_last_messages_if_they_may(era: Era) {
    for (line, may) in [("", false), ("show_payloads = true", true)] {
        let admin = format!("listen = \"127.0.0.1:0\"\n{line}");
        let rig = Rig::start(era, Config::always().section("admin", &admin)).await;
        let task = steps(&rig.client(), json!({"n": 3})).send().await;
        let task = task.into_task();
        let step = |state: &Value| state["statusMessage"] == "step 3";
        rig.client().until_it(&task, "at its last step", step).await;
        let operators = Client::of(rig.proxy.operators().await);
        let shown = operators.page(&format!("/tasks/{}", task.id)).await.json();
        if may {
            let texts = shown["messages"].as_array().unwrap().iter();
            let texts: Vec<_> = texts.map(|said| said["text"].as_str().unwrap()).collect();
            assert_eq!(texts, ["step 1", "step 2", "step 3"]);
            assert!(shown["messages"][0]["at"].is_string());
        } else {
            assert!(!shown.to_string().contains("step 3"), "{shown}");
        }
    }
}

async fn the_last_words_before_an_end_are_kept(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client().without_tasks();
    let given = steps(&client, json!({"then": "log"})).send().await;
    let given = given.into_result();
    let ticket = json!({"ticket": given["structuredContent"]["ticket"]});
    rig.upstream.release("steps");
    let status = client.call("task_status", ticket).await.into_result();
    let status = &status["structuredContent"];
    assert_eq!(status["state"], "completed", "{status}");
    assert_eq!(status["messages"][0]["text"], "error: stepped", "{status}");
}
