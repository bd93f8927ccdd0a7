//! A server that is spoken to in HTTP/2: clients see no difference. That the server speaks it is seen by `Host`, which only
//! HTTP/1.1 has.

use std::time::Duration;

use serde_json::json;

use crate::support::session::accept;
use crate::support::{Config, Era, Rig, in_both_eras, within};

in_both_eras!(
    a_task_and_a_plain_call_end_with_their_results,
    a_question_of_the_server_is_answered,
    a_cancelled_task_ends_its_call_at_the_server,
    a_client_that_leaves_ends_its_call_and_no_other,
    many_tasks_run_at_once,
);

async fn start(era: Era, config: Config) -> Rig {
    Rig::start(era, config.section("upstream", "http2 = true")).await
}

async fn a_task_and_a_plain_call_end_with_their_results(era: Era) {
    let rig = start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&task, "completed").await;
    let plain = client.without_tasks();
    let text = plain
        .call("echo", json!({"text": "plain"}))
        .await
        .into_text();
    assert!(text.contains("plain"), "{text}");
    let calls = rig.upstream.requests("tools/call");
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.header("host").is_none()));
}

async fn a_question_of_the_server_is_answered(era: Era) {
    let rig = start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let state = client.until(&task, "input_required").await;
    let asked = state["inputRequests"].as_object().unwrap();
    let key = asked.keys().next().unwrap();
    let answer = json!({key: accept("Ada")});
    client.update(&task, answer).await.assert_acknowledged();
    let ended = client.until(&task, "completed").await;
    assert!(ended["result"].to_string().contains("Ada"), "{ended}");
}

async fn a_cancelled_task_ends_its_call_at_the_server(era: Era) {
    let rig = start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    client.cancel(&task).await.assert_acknowledged();
    let told = rig.upstream.until("never", "told", |it| it.cancelled == 1);
    within(Duration::from_secs(2), "the server is told", told).await;
}

async fn a_client_that_leaves_ends_its_call_and_no_other(era: Era) {
    let rig = start(era, Config::never()).await;
    let beside = tokio::spawn(rig.client().calling("held", json!({})).send());
    rig.upstream.until_started("held").await;
    let leaving = tokio::spawn(rig.client().calling("never", json!({})).send());
    rig.upstream.until_started("never").await;
    leaving.abort();
    let told = rig.upstream.until("never", "told", |it| it.cancelled == 1);
    within(Duration::from_secs(2), "the server is told", told).await;
    rig.upstream.release("held");
    assert_eq!(beside.await.unwrap().status, 200);
    assert_eq!(rig.upstream.tally("held").cancelled, 0);
}

/// More than one connection takes.
async fn many_tasks_run_at_once(era: Era) {
    const TASKS: u32 = 200;
    let rig = start(era, Config::always()).await;
    let client = rig.client();
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        tasks.push(client.call("held", json!({})).await.into_task());
    }
    let all = rig
        .upstream
        .until("held", "started", |it| it.started == TASKS);
    within(Duration::from_secs(20), "all calls have begun", all).await;
    rig.upstream.release("held");
    for task in tasks {
        client.until(&task, "completed").await;
    }
}
