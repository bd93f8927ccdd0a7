//! A task from its creation to its end, field by field.

use serde_json::{Value, json};

use crate::support::client::Task;
use crate::support::shape::{assert_created, assert_state};
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_created_task_is_flat_and_lasts_as_long_as_said,
    a_task_can_be_found_as_soon_as_it_is_announced,
    a_working_task_is_polled_less_and_less,
    a_completed_task_holds_the_result,
    a_tool_error_is_a_completed_task,
    a_protocol_error_is_a_failed_task_verbatim,
    progress_becomes_the_status_message,
    methods_of_tasks_need_the_capability_before_the_id,
    methods_of_other_task_protocols_are_unknown,
    unknown_ids_are_invalid_params,
    the_id_of_a_request_comes_back_as_it_went,
);

async fn a_created_task_is_flat_and_lasts_as_long_as_said(era: Era) {
    let terms = "max_duration = \"1m\"\nretention = \"2m\"";
    let rig = Rig::start(era, Config::always().terms(terms)).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    assert_created(&task.created);
    assert_eq!(task.created["status"], "working");
    assert_eq!(task.created["ttlMs"], 180_000);
    assert_eq!(task.created["pollIntervalMs"], 50);
    assert!(task.id.len() >= 22, "enough entropy: {}", task.id);
    let state = client.get(&task).await;
    for field in ["taskId", "createdAt", "ttlMs"] {
        assert_eq!(state[field], task.created[field], "{field}");
    }
}

async fn a_task_can_be_found_as_soon_as_it_is_announced(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let tasks = (0..32).map(|_| async {
        let task = client.call("held", json!({})).await.into_task();
        let state = client.get(&task).await;
        assert_state(&state, "working");
        task.id
    });
    let mut ids = futures_util::future::join_all(tasks).await;
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 32, "ids are unique");
}

async fn a_working_task_is_polled_less_and_less(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let grown = |state: &Value| state["pollIntervalMs"].as_u64().unwrap() >= 100;
    let state = client.until_it(&task, "polled less often", grown).await;
    assert_state(&state, "working");
}

async fn a_completed_task_holds_the_result(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("slow", json!({"ms": 1})).await.into_task();
    let state = client.until(&task, "completed").await;
    assert_state(&state, "completed");
    assert_eq!(state["result"]["content"][0]["text"], "slept");
    assert!(date(&state) > date(&task.created), "{state}");
    assert_eq!(client.get(&task).await, {
        let mut again = state.clone();
        again["pollIntervalMs"] = client.get(&task).await["pollIntervalMs"].clone();
        again
    });
}

fn date(task: &Value) -> &str {
    task["lastUpdatedAt"].as_str().unwrap()
}

async fn a_tool_error_is_a_completed_task(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("fail", json!({})).await.into_task();
    let state = client.until(&task, "completed").await;
    assert_state(&state, "completed");
    assert_eq!(state["result"]["isError"], true);
    assert_eq!(state["result"]["content"][0]["text"], "it went wrong");
}

async fn a_protocol_error_is_a_failed_task_verbatim(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("error", json!({})).await.into_task();
    let state = client.until(&task, "failed").await;
    assert_state(&state, "failed");
    let text = client.asking("tasks/get", &task).send().await.text;
    let verbatim = r#""error":{"code":-32050,"message":"no such luck","data":{"z":1.10,"a":[]}}"#;
    assert!(text.contains(verbatim), "{text}");
    assert!(
        state["statusMessage"].is_string(),
        "diagnostics for whoever looks: {state}"
    );
}

async fn progress_becomes_the_status_message(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("steps", json!({"n": 3})).await.into_task();
    let third = |state: &Value| state["statusMessage"] == "step 3";
    let state = client.until_it(&task, "at step 3", third).await;
    assert_state(&state, "working");
    assert_eq!(
        state["_meta"]["io.raincheck/progress"]["total"].as_f64(),
        Some(3.0)
    );
    rig.upstream.release("steps");
    assert_state(&client.until(&task, "completed").await, "completed");
}

async fn methods_of_tasks_need_the_capability_before_the_id(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let real = rig.client().call("held", json!({})).await.into_task();
    let client = rig.client().without_tasks();
    for task in [real, unknown()] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let refused = client.asking(method, &task).send().await;
            assert_eq!(refused.refusal(), (400, -32021), "{method}");
            let required = &refused.json()["error"]["data"]["requiredCapabilities"];
            assert!(required["extensions"]["io.modelcontextprotocol/tasks"].is_object());
        }
    }
}

async fn methods_of_other_task_protocols_are_unknown(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    for method in ["tasks/result", "tasks/list"] {
        let refused = client.asking(method, &task).send().await;
        assert_eq!(refused.refusal(), (404, -32601), "{method}");
        assert!(
            rig.upstream.requests(method).is_empty(),
            "{method} is no business of the server"
        );
    }
}

async fn unknown_ids_are_invalid_params(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    for id in [
        &unknown().id,
        "",
        "nonsense",
        "../../etc",
        &"9".repeat(5000),
    ] {
        let task = Task::by_id(id);
        for method in ["tasks/get", "tasks/cancel"] {
            let refused = client.asking(method, &task).send().await;
            assert_eq!(refused.refusal(), (400, -32602), "{method} {id:.20}");
        }
        let refused = client.update(&task, json!({})).await;
        assert_eq!(refused.refusal(), (400, -32602), "tasks/update {id:.20}");
    }
    for wrong in [json!({}), json!({"taskId": 7}), json!({"taskId": null})] {
        let refused = client.request("tasks/get", wrong).send().await;
        assert_eq!(refused.refusal(), (400, -32602));
    }
}

/// An id as raincheck would make it, of no task.
fn unknown() -> Task {
    Task::by_id(uuid::Uuid::new_v4().to_string())
}

async fn the_id_of_a_request_comes_back_as_it_went(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    for id in [
        "0",
        "-7",
        "12345678901234567890123",
        r#""a""#,
        r#""\u00e9/é""#,
        r#""""#,
    ] {
        let raw: Box<serde_json::value::RawValue> = serde_json::from_str(id).unwrap();
        for tool in ["echo", "no such tool"] {
            let call = client
                .calling(tool, json!({"text": ""}))
                .edit(|m| m["id"] = json!("ID"));
            let answer = call.replace("\"ID\"", raw.get()).send().await;
            assert!(
                answer.text.contains(&format!("\"id\":{id},")),
                "{id}: {}",
                answer.text
            );
        }
    }
}
