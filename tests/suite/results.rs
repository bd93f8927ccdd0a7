//! Results are kept byte for byte, but for two edits, whatever their size and the store.

use serde_json::json;

use crate::redis_server::RedisServer;
use crate::support::upstream::FAITHFUL;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_kept_result_keeps_its_bytes,
    a_plain_result_keeps_its_bytes,
    arguments_reach_the_server_as_they_were_written,
    a_large_result_in_memory,
    a_large_result_in_a_file,
    a_large_result_in_redis,
    a_result_over_the_limit_fails_honestly,
);

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
