//! When a call becomes a task, and when it must not.

use serde_json::json;

use crate::redis_server::RedisServer;
use crate::support::client::TASKS;
use crate::support::shape::assert_created;
use crate::support::{Client, Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_fast_answer_stays_plain,
    a_fast_answer_leaves_nothing_in_the_store,
    a_slow_call_becomes_a_task_when_the_window_ends,
    never_is_never_a_task,
    a_client_without_tasks_gets_the_plain_result,
    a_tool_that_needs_tasks_refuses_who_has_none,
    each_request_speaks_for_itself,
    the_first_rule_that_fits_decides,
    the_legacy_task_param_is_ignored,
);

async fn a_fast_answer_stays_plain(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    let answer = rig.client().call("echo", json!({"text": "hello"})).await;
    assert_eq!(answer.into_text(), "hello");
}

async fn a_fast_answer_leaves_nothing_in_the_store(era: Era) {
    let redis = RedisServer::start();
    let rig = Rig::start(era, Config::auto("10s").redis(&redis.url())).await;
    let answer = rig.client().call("echo", json!({"text": "hello"})).await;
    assert_eq!(answer.into_text(), "hello");
    assert_eq!(tasks_in(&redis), Vec::<String>::new());
    let redis = RedisServer::start();
    let kept = Rig::start(era, Config::always().redis(&redis.url())).await;
    kept.client()
        .call("echo", json!({"text": "hello"}))
        .await
        .into_task();
    assert_eq!(tasks_in(&redis).len(), 1, "the pattern of a task's key");
}

fn tasks_in(redis: &RedisServer) -> Vec<String> {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    redis::cmd("KEYS")
        .arg("*:t:*")
        .query(&mut connection)
        .unwrap()
}

async fn a_slow_call_becomes_a_task_when_the_window_ends(era: Era) {
    let rig = Rig::start(era, Config::auto("100ms")).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    assert_created(&task.created);
    assert_eq!(client.get(&task).await["status"], "working");
    rig.upstream.release("held");
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "released");
    assert_eq!(rig.upstream.tally("held").started, 1, "one execution");
}

async fn never_is_never_a_task(era: Era) {
    let rig = Rig::start(era, Config::never().terms("grace_window = \"10ms\"")).await;
    let answer = rig.client().call("slow", json!({"ms": 300})).await;
    assert_eq!(answer.into_text(), "slept");
}

async fn a_client_without_tasks_gets_the_plain_result(era: Era) {
    for config in [Config::always(), Config::auto("10ms")] {
        let rig = Rig::start(era, config).await;
        let client = rig.client().without_tasks();
        let answer = client.call("slow", json!({"ms": 200})).await;
        assert_eq!(answer.into_text(), "slept");
    }
}

async fn a_tool_that_needs_tasks_refuses_who_has_none(era: Era) {
    let rig = Rig::start(era, Config::always().tool("held", "require_tasks = true")).await;
    let refused = rig.client().without_tasks().call("held", json!({})).await;
    assert_eq!(refused.refusal(), (400, -32021));
    assert_eq!(
        refused.json()["error"]["data"],
        json!({"requiredCapabilities": {"extensions": {TASKS: {}}}})
    );
    assert_eq!(rig.upstream.executions(), 0);
    rig.client().call("held", json!({})).await.into_task();
}

async fn each_request_speaks_for_itself(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    client.call("echo", json!({"text": "a"})).await.into_task();
    let plain = client
        .clone()
        .without_tasks()
        .call("echo", json!({"text": "b"}))
        .await;
    assert_eq!(plain.into_text(), "b");
    // What a legacy client would say is no consent.
    let legacy = client.declaring(json!({"tasks": {"requests": {"tools": {"call": {}}}}}));
    assert_eq!(
        legacy.call("echo", json!({"text": "c"})).await.into_text(),
        "c"
    );
}

async fn the_first_rule_that_fits_decides(era: Era) {
    let config = Config::always()
        .tool("echo", "mode = \"never\"")
        .tool("*", "mode = \"always\"");
    let rig = Rig::start(era, config).await;
    let client: Client = rig.client();
    assert_eq!(
        client.call("echo", json!({"text": "x"})).await.into_text(),
        "x"
    );
    client.call("slow", json!({"ms": 1})).await.into_task();
}

async fn the_legacy_task_param_is_ignored(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let call = rig.client().calling("echo", json!({"text": "x"}));
    let call = call.edit(|message| message["params"]["task"] = json!({"ttl": 1000}));
    assert_eq!(call.send().await.into_text(), "x");
    let calls = rig.upstream.requests("tools/call");
    assert!(
        calls[0].json()["params"].get("task").is_none(),
        "{}",
        calls[0].text()
    );
}
