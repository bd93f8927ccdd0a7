//! Results are kept byte for byte, but for two edits, whatever their size and the store.

use serde_json::{Value, json};

use crate::redis_server::RedisServer;
use crate::support::answer::Task;
use crate::support::upstream::FAITHFUL;
use crate::support::{Config, Era, PATIENCE, Rig, eventually, in_both_eras};

in_both_eras!(
    a_kept_result_keeps_its_bytes,
    a_plain_result_keeps_its_bytes,
    arguments_reach_the_server_as_they_were_written,
    a_large_result_in_memory,
    a_large_result_in_a_file,
    a_large_result_in_redis,
    a_result_over_the_limit_fails_honestly,
    a_result_is_kept_however_deep_and_half_it_is,
    an_error_about_a_method_is_no_missing_page,
    a_completed_task_shows_its_last_progress,
);

/// The words of 2026-07-28 mean nothing in a result of 2025: it is not a question, and its call is not
/// sent again.
#[tokio::test]
async fn a_legacy_result_is_complete_whatever_it_says() {
    let asks = r#"{"resultType":"input_required","requestState":"s","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m"}}},"content":[]}"#;
    let says_task = r#"{"resultType":"task","taskId":"x","content":[]}"#;
    let empty = r#"{"resultType":"input_required","content":[]}"#;
    for result in [asks, says_task, empty] {
        for config in [Config::always(), Config::auto("10s"), Config::never()] {
            let rig = Rig::start(Era::Legacy, config).await;
            let client = rig.client();
            let answer = client.call("verbatim", json!({"result": result})).await;
            let mut said = answer.json()["result"].take();
            if said["resultType"] == "task" && said["taskId"] != "x" {
                let task = answer.into_task();
                said = client.until(&task, "completed").await["result"].take();
            }
            assert_eq!(said["resultType"], "complete", "{said}");
            assert_eq!(said["content"], json!([]), "{said}");
            assert_eq!(rig.upstream.tally("verbatim").started, 1, "{result}");
        }
    }
}

const LARGE: usize = 1 << 20;

async fn a_kept_result_keeps_its_bytes(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client
        .call("echo", json!({"text": "é\u{1f600}"}))
        .await
        .into_task();
    client.until(&task, "completed").await;
    let text = client.asking("tasks/get", &task).send().await.text;
    assert!(text.contains(FAITHFUL), "{text}");
    assert!(!text.contains("related-task"), "{text}");
    assert!(text.contains(r#""com.example/kept":1.0"#), "{text}");
}

async fn a_plain_result_keeps_its_bytes(era: Era) {
    for client_has_tasks in [true, false] {
        let rig = Rig::start(era, Config::auto("10s")).await;
        let client = rig.client();
        let client = if client_has_tasks {
            client
        } else {
            client.without_tasks()
        };
        let answer = client.call("echo", json!({"text": "x"})).await;
        assert!(answer.text.contains(FAITHFUL), "{}", answer.text);
    }
}

async fn arguments_reach_the_server_as_they_were_written(era: Era) {
    for config in [Config::always(), Config::never()] {
        let rig = Rig::start(era, config).await;
        let arguments = r#"{ "text" : "\u00e9é", "b":1.10,"a":12345678901234567890123 }"#;
        let call = rig.client().calling("echo", json!("ARGUMENTS"));
        call.replace("\"ARGUMENTS\"", arguments).send().await;
        rig.upstream.until_received("tools/call", 1).await;
        let text = rig.upstream.requests("tools/call")[0].text().to_owned();
        assert!(text.contains(arguments), "{text}");
    }
}

async fn a_large_result_in_memory(era: Era) {
    large(era, Config::always()).await;
}

async fn a_large_result_in_a_file(era: Era) {
    large(era, Config::always().embedded()).await;
}

async fn a_large_result_in_redis(era: Era) {
    let redis = RedisServer::start();
    large(era, Config::always().redis(&redis.url())).await;
}

async fn large(era: Era, config: Config) {
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let task = client
        .call("big", json!({"bytes": LARGE}))
        .await
        .into_task();
    let state = client.until(&task, "completed").await;
    let text = state["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), LARGE);
    let told = client.listen(&[&task]).await.until("completed").await;
    assert_eq!(told["result"], state["result"]);
}

async fn a_result_over_the_limit_fails_honestly(era: Era) {
    let rig = Rig::start(era, Config::always().terms("result_bytes_max = \"64KiB\"")).await;
    let client = rig.client();
    let task = client
        .call("big", json!({"bytes": LARGE}))
        .await
        .into_task();
    let state = client.until(&task, "failed").await;
    let data = &state["error"]["data"];
    assert_eq!(state["error"]["code"], -32603, "{state}");
    assert_eq!(data["io.raincheck/reason"], "upstream_too_large", "{state}");
    assert_eq!(data["io.raincheck/effect"], "unknown", "{state}");
}

/// The tool has run: its result is not lost for a text cut in the middle of an emoji, nor for a tree.
async fn a_result_is_kept_however_deep_and_half_it_is(era: Era) {
    let redis = RedisServer::start();
    let tree = format!("{}{}", "[".repeat(4000), "]".repeat(4000));
    let kind = match era {
        Era::Legacy => "",
        Era::Modern => r#""resultType":"complete","#,
    };
    let (said, kept) = (r#""text":"cut \ud83d""#, r#""text":"cut \ufffd""#);
    let result = format!(r#"{{{kind}"content":[{{"type":"text",{said}}}],"x":{tree}}}"#);
    for config in [
        Config::auto("10s"),
        Config::always(),
        Config::always().embedded(),
        Config::always().redis(&redis.url()),
    ] {
        let rig = Rig::start(era, config).await;
        let client = rig.client();
        let call = client.calling("verbatim", json!({"result": result}));
        let mut answer = call.send().await.text;
        if answer.contains(r#""taskId""#) {
            let task = serde_json::from_str::<Value>(&answer).unwrap()["result"].take();
            let task = Task::by_id(task["taskId"].as_str().unwrap());
            answer = eventually(PATIENCE, "the task ends", async || {
                let state = client.asking("tasks/get", &task).send().await.text;
                let works = state.contains(r#""status":"working""#);
                if works { Err(state) } else { Ok(state) }
            })
            .await;
        }
        assert!(
            answer.contains(kept) && answer.contains(&tree),
            "{answer:.200}"
        );
        assert_eq!(rig.upstream.tally("verbatim").started, 1);
    }
}

/// 404 is for methods that raincheck does not know. Clients lose the error behind it.
async fn an_error_about_a_method_is_no_missing_page(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    let answer = rig.client().call("no_method", json!({})).await;
    assert_eq!(answer.refusal(), (200, -32601));
    assert_eq!(answer.json()["error"]["message"], "no such method");
}

/// Also where the last of it came too soon after the one before to be written down by itself.
async fn a_completed_task_shows_its_last_progress(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    rig.upstream.release("steps");
    let task = client.call("steps", json!({"n": 4})).await.into_task();
    let state = client.until(&task, "completed").await;
    let progress = &state["_meta"]["io.raincheck/progress"];
    assert_eq!(progress["progress"].as_f64(), Some(4.0), "{state}");
}
