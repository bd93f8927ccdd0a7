//! A task belongs to its caller; for every other caller it does not exist.

use serde_json::json;

use crate::support::client::{Answer, Client, Task};
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_foreign_task_is_an_unknown_one_byte_for_byte,
    a_foreign_task_is_not_listened_to,
    nobody_cancels_or_answers_for_another,
    credentials_reach_a_server_on_this_machine,
);

/// Everything of an answer that its reader could compare.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let headers = answer.headers.iter().filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()));
    (answer.status, headers.collect(), answer.body.clone())
}

async fn ask(client: &Client, method: &str, task: &Task) -> Answer {
    let request = client.asking(method, task).edit(|message| {
        message["id"] = json!(1);
        message["params"]["inputResponses"] = json!({"q1": {"action": "decline"}});
    });
    request.send().await
}

async fn a_foreign_task_is_an_unknown_one_byte_for_byte(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let alice = rig.client().named("Bearer alice");
    let strangers = [
        rig.client().named("Bearer bob"),
        rig.client(),
        rig.client().named("bearer alice"),
    ];
    let unknown = Task::by_id(uuid::Uuid::new_v4().to_string());
    for tool in ["held", "ask", "echo"] {
        let task = alice.call(tool, json!({"text": ""})).await.into_task();
        for stranger in &strangers {
            for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
                let foreign = ask(stranger, method, &task).await;
                assert_eq!(foreign.refusal(), (400, -32602), "{method}");
                assert_eq!(
                    seen(&foreign),
                    seen(&ask(stranger, method, &unknown).await),
                    "{method}"
                );
            }
        }
    }
}

async fn a_foreign_task_is_not_listened_to(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let alice = rig.client().named("Bearer alice");
    let bob = rig.client().named("Bearer bob");
    let hers = alice
        .call("held", json!({"nonce": "hers"}))
        .await
        .into_task();
    let his = bob.call("held", json!({"nonce": "his"})).await.into_task();
    let mut stream = bob.listen(&[&hers, &his]).await;
    let ack = stream.next().await;
    assert_eq!(ack["params"]["notifications"]["taskIds"], json!([his.id]));
    rig.upstream.release("hers");
    alice.until(&hers, "completed").await;
    rig.upstream.release("his");
    loop {
        let params = stream.next_of("notifications/tasks").await["params"].take();
        assert_eq!(
            params["taskId"], his.id,
            "nothing of another's task is heard"
        );
        if params["status"] == "completed" {
            return;
        }
    }
}

async fn nobody_cancels_or_answers_for_another(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let alice = rig.client().named("Bearer alice");
    let bob = rig.client().named("Bearer bob");
    let task = alice.call("ask", json!({})).await.into_task();
    let before = alice.until(&task, "input_required").await;
    ask(&bob, "tasks/cancel", &task).await;
    ask(&bob, "tasks/update", &task).await;
    let after = alice.get(&task).await;
    assert_eq!(before["inputRequests"], after["inputRequests"]);
    assert_eq!(before["lastUpdatedAt"], after["lastUpdatedAt"]);
}

async fn credentials_reach_a_server_on_this_machine(era: Era) {
    for config in [Config::always(), Config::never()] {
        let rig = Rig::start(era, config).await;
        let alice = rig.client().named("Bearer alice");
        alice.call("echo", json!({"text": ""})).await.into_result();
        rig.upstream.until_received("tools/call", 1).await;
        for call in rig.upstream.requests("tools/call") {
            assert_eq!(call.header("authorization"), Some("Bearer alice"));
        }
    }
}
