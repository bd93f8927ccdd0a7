//! `tasks/cancel`: the task ends at the acknowledgement, and the server is told.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::shape::assert_state;
use crate::support::{Config, Era, Rig, in_both_eras, within};

in_both_eras!(
    a_cancelled_task_is_cancelled_and_the_server_told,
    a_task_that_waits_for_input_is_cancelled,
    cancelling_what_has_ended_changes_nothing,
    a_task_is_not_cancelled_by_notification,
    a_client_that_leaves_a_plain_call_cancels_it,
    a_client_that_leaves_after_the_task_cancels_nothing,
);

const SOON: Duration = Duration::from_secs(2);

async fn a_cancelled_task_is_cancelled_and_the_server_told(era: Era) {
    for config in [Config::always(), Config::auto("20ms")] {
        let rig = Rig::start(era, config).await;
        let client = rig.client();
        let task = client.call("never", json!({})).await.into_task();
        rig.upstream.until_started("never").await;
        client.cancel(&task).await.assert_acknowledged();
        assert_state(&client.get(&task).await, "cancelled");
        let told = rig
            .upstream
            .until("never", "cancelled", |tally| tally.cancelled == 1);
        within(SOON, "the server is told", told).await;
        assert_state(&client.get(&task).await, "cancelled");
    }
}

async fn a_task_that_waits_for_input_is_cancelled(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    client.until(&task, "input_required").await;
    client.cancel(&task).await.assert_acknowledged();
    assert_state(&client.get(&task).await, "cancelled");
    within(
        SOON,
        "nothing runs at the server",
        rig.upstream.until_idle(),
    )
    .await;
}

async fn cancelling_what_has_ended_changes_nothing(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let ends = [
        ("slow", "completed"),
        ("fail", "completed"),
        ("error", "failed"),
    ];
    for (tool, status) in ends {
        let task = client.call(tool, json!({"ms": 0})).await.into_task();
        let before = client.until(&task, status).await;
        client.cancel(&task).await.assert_acknowledged();
        let after = client.get(&task).await;
        for field in ["status", "lastUpdatedAt", "result", "error"] {
            assert_eq!(before.get(field), after.get(field), "{tool}: {field}");
        }
    }
    let task = client.call("never", json!({})).await.into_task();
    for _ in 0..3 {
        client.cancel(&task).await.assert_acknowledged();
        assert_state(&client.get(&task).await, "cancelled");
    }
}

async fn a_task_is_not_cancelled_by_notification(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let answer = client.call("held", json!({})).await;
    let id = answer.json()["id"].clone();
    let task = answer.into_task();
    let params: Value = json!({"requestId": id});
    let note = client.request("notifications/cancelled", params);
    let note = note.edit(|message| {
        message.as_object_mut().unwrap().remove("id");
    });
    assert_eq!(note.send().await.status, 202);
    rig.upstream.release("held");
    client.until(&task, "completed").await;
}

async fn a_client_that_leaves_a_plain_call_cancels_it(era: Era) {
    for config in [Config::never(), Config::auto("10s")] {
        let rig = Rig::start(era, config).await;
        for client in [rig.client(), rig.client().without_tasks()] {
            let before = rig.upstream.tally("never");
            let call = client.calling("never", json!({})).send();
            let call = tokio::spawn(call);
            rig.upstream
                .until("never", "started", |tally| tally.started > before.started)
                .await;
            call.abort();
            let told = |tally: crate::support::upstream::Tally| tally.cancelled > before.cancelled;
            let told = rig.upstream.until("never", "cancelled", told);
            within(SOON, "the server is told", told).await;
        }
    }
}

async fn a_client_that_leaves_after_the_task_cancels_nothing(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    // The connection of each request is closed after it.
    let task = client.call("held", json!({})).await.into_task();
    rig.upstream.until_started("held").await;
    rig.upstream.release("held");
    client.until(&task, "completed").await;
    assert_eq!(rig.upstream.tally("held").cancelled, 0);
}
