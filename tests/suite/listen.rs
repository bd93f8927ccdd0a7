//! `subscriptions/listen`: a task's changes as they happen, and the server's own.

use serde_json::{Value, json};

use crate::support::client::Task;
use crate::support::shape::{assert_notified, assert_state};
use crate::support::upstream::modern::LATE;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    the_acknowledgement_comes_first_and_grants_only_known_tasks,
    the_state_at_subscription_is_told,
    every_change_is_told_to_the_last,
    a_notification_is_what_a_poll_would_have_said,
    the_subscription_is_named_by_the_id_of_its_request,
    who_does_not_declare_tasks_is_refused,
    a_filter_that_is_none_is_refused,
    changes_at_the_server_come_on_the_same_stream,
    nothing_but_tasks_is_said_of_a_task,
    many_listeners_hear_the_same,
    a_stop_ends_the_stream_in_order,
);

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

async fn the_acknowledgement_comes_first_and_grants_only_known_tasks(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let one = client.call("held", json!({})).await.into_task();
    let two = client.call("echo", json!({})).await.into_task();
    let unknown = Task::by_id(uuid::Uuid::new_v4().to_string());
    let nonsense = Task::by_id("nonsense");
    let mut stream = client
        .listen(&[&one, &unknown, &two, &nonsense, &one])
        .await;
    assert_eq!(stream.status, 200);
    let ack = stream.next().await;
    assert_eq!(ack["method"], ACKNOWLEDGED);
    assert_eq!(
        ack["params"]["notifications"]["taskIds"],
        json!([one.id, two.id])
    );
}

async fn the_state_at_subscription_is_told(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let running = client.call("held", json!({})).await.into_task();
    let ended = client.call("fail", json!({})).await.into_task();
    client.until(&ended, "completed").await;
    let mut stream = client.listen(&[&running]).await;
    let told = stream.next_of("notifications/tasks").await;
    assert_notified(&told["params"], "working");
    let mut stream = client.listen(&[&ended]).await;
    let told = stream.next_of("notifications/tasks").await;
    assert_notified(&told["params"], "completed");
}

async fn every_change_is_told_to_the_last(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let mut stream = client.listen(&[&task]).await;
    let asked = stream.until("input_required").await;
    assert_notified(&asked, "input_required");
    let keys: Vec<&String> = asked["inputRequests"].as_object().unwrap().keys().collect();
    let answer = json!({keys[0]: {"action": "accept", "content": {"name": "Ada"}}});
    client.update(&task, answer).await.assert_acknowledged();
    let ended = stream.until("completed").await;
    assert_notified(&ended, "completed");
    assert_eq!(ended["result"]["content"][0]["text"], "Ada");

    for (tool, end) in [("error", "failed"), ("never", "cancelled")] {
        let task = client.call(tool, json!({})).await.into_task();
        let mut stream = client.listen(&[&task]).await;
        if end == "cancelled" {
            client.cancel(&task).await.assert_acknowledged();
        }
        assert_notified(&stream.until(end).await, end);
    }
}

async fn a_notification_is_what_a_poll_would_have_said(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    let mut told = client.listen(&[&task]).await.until("completed").await;
    let mut polled = client.get(&task).await;
    assert_state(&polled, "completed");
    for one in [&mut told, &mut polled] {
        let members = one.as_object_mut().unwrap();
        for own in ["resultType", "_meta", "pollIntervalMs"] {
            members.remove(own);
        }
    }
    assert_eq!(told, polled);
}

async fn the_subscription_is_named_by_the_id_of_its_request(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("echo", json!({})).await.into_task();
    for id in [json!(4), json!("listen-1"), json!("4")] {
        let listen = client.listening(json!({"taskIds": [task.id]}));
        let mut stream = listen
            .edit(|message| message["id"] = id.clone())
            .stream()
            .await;
        for method in [ACKNOWLEDGED, "notifications/tasks"] {
            let message = stream.next().await;
            assert_eq!(message["method"], method);
            assert_eq!(message["params"]["_meta"][SUBSCRIPTION], id, "{message}");
        }
    }
}

async fn who_does_not_declare_tasks_is_refused(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let task = rig.client().call("held", json!({})).await.into_task();
    let client = rig.client().without_tasks();
    for ids in [json!([task.id]), json!([]), json!(["unknown"])] {
        let refused = client.listening(json!({"taskIds": ids})).send().await;
        assert_eq!(refused.refusal(), (400, -32021));
        let required = &refused.json()["error"]["data"]["requiredCapabilities"];
        assert!(required["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    }
}

async fn a_filter_that_is_none_is_refused(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let too_many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    for ids in [
        json!("x"),
        json!({}),
        json!([1]),
        json!(null),
        json!(too_many),
    ] {
        let refused = client.listening(json!({"taskIds": ids})).send().await;
        assert_eq!(refused.refusal(), (400, -32602));
    }
    for filter in [json!(null), json!([]), json!("x")] {
        assert_eq!(
            client.listening(filter).send().await.refusal(),
            (400, -32602)
        );
    }
}

async fn changes_at_the_server_come_on_the_same_stream(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let filter = json!({"taskIds": [task.id], "toolsListChanged": true});
    let listen = client
        .listening(filter)
        .edit(|message| message["id"] = json!("mine"));
    let mut stream = listen.stream().await;
    let ack = stream.next().await;
    let granted = json!({"taskIds": [task.id], "toolsListChanged": true});
    assert_eq!(ack["params"]["notifications"], granted, "{ack}");
    assert_eq!(ack["params"]["_meta"][SUBSCRIPTION], "mine");
    rig.upstream.until_listened().await;
    rig.upstream.tell("notifications/tools/list_changed");
    let told = stream.next_of("notifications/tools/list_changed").await;
    assert_eq!(told["params"]["_meta"][SUBSCRIPTION], "mine", "{told}");
    rig.upstream.release("held");
    assert_notified(&stream.until("completed").await, "completed");
}

/// Its listener hears of what may have been missed by then, and of what comes.
#[tokio::test]
async fn a_server_that_acknowledges_late_is_heard() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": [LATE]});
    let mut stream = rig.client().listening(filter).stream().await;
    let ack = stream
        .next_of("notifications/subscriptions/acknowledged")
        .await;
    assert_eq!(ack["params"]["notifications"], json!({}), "{ack}");
    rig.upstream.release(LATE);
    stream.next_of("notifications/tools/list_changed").await;
    let missed = stream.next_of("notifications/resources/updated").await;
    assert_eq!(missed["params"]["uri"], LATE);
    rig.upstream.tell("notifications/resources/updated");
    stream.next_of("notifications/resources/updated").await;
}

async fn nothing_but_tasks_is_said_of_a_task(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("steps", json!({"n": 5})).await.into_task();
    let mut stream = client.listen(&[&task]).await;
    assert_eq!(stream.next().await["method"], ACKNOWLEDGED);
    let mut released = false;
    loop {
        let message = stream.next().await;
        assert_eq!(message["method"], "notifications/tasks", "{message}");
        let told = &message["params"];
        if told["status"] == "completed" {
            return;
        }
        if told["statusMessage"] == "step 5" && !released {
            rig.upstream.release("steps");
            released = true;
        }
    }
}

async fn many_listeners_hear_the_same(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let mut streams = Vec::new();
    for _ in 0..10 {
        let mut stream = client.listen(&[&task]).await;
        assert_notified(&stream.until("working").await, "working");
        streams.push(stream);
    }
    drop(streams.split_off(5));
    rig.upstream.release("held");
    let ends = streams.iter_mut().map(|stream| stream.until("completed"));
    let ends: Vec<Value> = futures_util::future::join_all(ends).await;
    assert!(ends.iter().all(|end| end["result"] == ends[0]["result"]));
}

async fn a_stop_ends_the_stream_in_order(era: Era) {
    let mut rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("echo", json!({})).await.into_task();
    let mut stream = client.listen(&[&task]).await;
    stream.until("completed").await;
    let (status, ()) = tokio::join!(rig.proxy.stop(), async {
        let cancelled = stream.next_of("notifications/cancelled").await;
        assert!(cancelled["params"]["requestId"].is_number(), "{cancelled}");
        let end = stream.next().await;
        assert_eq!(end["id"], cancelled["params"]["requestId"]);
        assert_eq!(end["result"]["resultType"], "complete", "{end}");
        assert!(stream.next_or_end().await.is_none());
    });
    assert!(status.success(), "{status}");
}
