//! `[[notify]]`: who is told of the states of tasks, however its receiver behaves and whoever dies.

use std::time::Duration;

use serde_json::json;

use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::receiver::{Receiver, Reply, SECRET, Webhook};
use crate::support::{Client, Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras};

in_both_eras!(
    each_state_is_told_in_order_and_nothing_private_is_said,
    a_lost_owner_has_told_or_another_replica_tells,
);

/// Longer than an attempt and a claim together.
const LONG: Duration = Duration::from_secs(40);

/// A counter of webhooks.
async fn counted(rig: &Rig, outcome: &str) -> u64 {
    let operators = Client::of(rig.proxy.operators().await);
    let page = operators.page("/metrics").await.of_status(200).unwrap();
    let name = format!("raincheck_webhooks_total{{outcome=\"{outcome}\"}} ");
    let line = page.body.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |number| number.parse().unwrap())
}

async fn until_counted(rig: &Rig, outcome: &str, wanted: u64) {
    let what = format!("{wanted} webhooks {outcome}");
    eventually(PATIENCE, &what, async || {
        let found = counted(rig, outcome).await;
        (found == wanted).then_some(()).ok_or(found)
    })
    .await;
}

async fn each_state_is_told_in_order_and_nothing_private_is_said(era: Era) {
    let receiver = Receiver::start([]).await;
    let rig = Rig::start(era, receiver.of(Config::always(), "")).await;
    let client = rig.client();
    let done = client.call("echo", json!({"text": "private"})).await;
    let done = done.into_task();
    client.until(&done, "completed").await;
    let failed = client.call("error", json!({})).await.into_task();
    client.until(&failed, "failed").await;
    let cancelled = client.call("never", json!({})).await.into_task();
    client.cancel(&cancelled).await.assert_acknowledged();
    let asked = client.call("ask", json!({})).await.into_task();
    let state = client.until(&asked, "input_required").await;
    let key = state["inputRequests"].as_object().unwrap().keys().next();
    let answer = json!({key.unwrap(): {"action": "accept", "content": {"name": "Ada"}}});
    client.update(&asked, answer).await.assert_acknowledged();
    client.until(&asked, "completed").await;
    let all = receiver.until_taken(PATIENCE, 5).await;
    for (task, states) in [
        (&done, &["completed"][..]),
        (&failed, &["failed"]),
        (&cancelled, &["cancelled"]),
        (&asked, &["input_required", "completed"]),
    ] {
        let short = &task.id[..8];
        let own = all.iter().filter(|it| it.json["data"]["task"] == short);
        let told: Vec<_> = own.map(Webhook::state).collect();
        assert_eq!(told, states, "{all:#?}");
    }
    for webhook in &all {
        assert_eq!(webhook.json["type"], "raincheck.task.updated");
        for private in ["private", "Ada", SECRET] {
            assert!(!webhook.text.contains(private), "{webhook:?}");
        }
        let whole = [&done, &failed, &cancelled, &asked];
        assert!(!whole.iter().any(|task| webhook.text.contains(&task.id)));
        let same = all.iter().filter(|it| it.id == webhook.id).count();
        assert_eq!(same, 1, "each is sent once while nothing fails");
    }
}

#[tokio::test]
async fn a_receiver_that_fails_or_redirects_is_told_again_and_in_order() {
    let elsewhere = Receiver::start([]).await;
    let receiver = Receiver::start([
        Reply::Status(500),
        Reply::Redirect(format!("{}/hook", elsewhere.url)),
    ])
    .await;
    let config = with_operators(receiver.of(Config::always(), ""));
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    client.until(&task, "input_required").await;
    client.cancel(&task).await.assert_acknowledged();
    let all = receiver.until_taken(LONG, 2).await;
    let told: Vec<_> = all.iter().map(Webhook::state).collect();
    let question = "input_required";
    assert_eq!(told, [question, question, question, "cancelled"]);
    assert!(
        all[..3]
            .iter()
            .all(|it| it.id == all[0].id && it.path == "/hook")
    );
    assert_ne!(all[3].id, all[0].id);
    assert!(elsewhere.got().is_empty(), "a redirect is not followed");
    until_counted(&rig, "delivered", 2).await;
    assert_eq!(counted(&rig, "retried").await, 2);
    rig.proxy
        .until_said("a receiver takes webhooks again", 1)
        .await;
    let log = rig.proxy.log();
    let told = "a receiver did not take a webhook; it is tried again";
    assert_eq!(log.matches(told).count(), 1, "once for two attempts: {log}");
    assert!(log.contains("HTTP 500"), "{log}");
}

#[tokio::test]
async fn a_receiver_that_hangs_is_told_again_and_holds_no_other_up() {
    let hanging = Receiver::start([Reply::Hang]).await;
    let other = Receiver::start([]).await;
    let config = other.of(hanging.of(Config::always(), ""), "");
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&task, "completed").await;
    other.until_taken(PATIENCE, 1).await;
    let all = hanging.until_taken(LONG, 1).await;
    assert!(all.len() == 2 && all[0].id == all[1].id, "{all:#?}");
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_told_nothing_more() {
    let receiver = Receiver::start([Reply::Status(410)]).await;
    let config = with_operators(receiver.of(Config::always(), ""));
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    client.call("echo", json!({"text": "x"})).await.into_task();
    rig.proxy
        .until_said("a receiver of webhooks is gone", 1)
        .await;
    client.call("echo", json!({"text": "x"})).await.into_task();
    until_counted(&rig, "gone", 2).await;
    assert_eq!(receiver.got().len(), 1);
}

#[tokio::test]
async fn what_is_not_taken_in_time_is_given_up_and_counted() {
    let always = vec![Reply::Status(503); 100];
    let receiver = Receiver::start(always).await;
    let lines = "retry_for = \"5s\"\ntools = [\"ec*\"]\nstates = [\"completed\"]";
    let config = with_operators(receiver.of(Config::always(), lines));
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    // Neither the tool nor the state is one that the receiver hears of.
    let other = client.call("error", json!({})).await.into_task();
    client.until(&other, "failed").await;
    client.call("echo", json!({"text": "x"})).await.into_task();
    let said = "a webhook was given up: its receiver did not take it in time";
    rig.proxy.until_said(said, 1).await;
    assert_eq!(counted(&rig, "given_up").await, 1);
    let all = receiver.got();
    assert!((2..=4).contains(&all.len()), "{all:#?}");
    assert!(all.iter().all(|it| it.json["data"]["tool"] == "echo"));
}

async fn a_lost_owner_has_told_or_another_replica_tells(era: Era) {
    // The receiver holds the first message, so that its sender is killed between the end and the delivery.
    let receiver = Receiver::start([Reply::Hang]).await;
    let upstream = Upstream::start(era).await;
    let config = receiver
        .of(Config::always(), "")
        .section("upstream", "shared = true");
    let mut pair = Pair::of(upstream, config).await;
    let client = pair.at_a();
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&task, "completed").await;
    receiver.until_asked(PATIENCE, 1).await;
    pair.a.kill();
    let all = receiver.until_taken(LONG, 1).await;
    assert!(all.len() == 2 && all[0].id == all[1].id, "{all:#?}");
    assert_eq!(all[1].json["data"]["task"], task.id[..8]);
    eventually(PATIENCE, "nothing waits to be told", async || {
        let record = pair.record(&task).await;
        let waits = record.contains("waiting");
        (!waits).then_some(()).ok_or(record)
    })
    .await;
}

#[tokio::test]
async fn what_a_killed_process_did_not_tell_its_next_run_tells() {
    let receiver = Receiver::start([Reply::Hang]).await;
    let config = receiver.of(Config::always().embedded(), "");
    let mut rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&task, "completed").await;
    receiver.until_asked(PATIENCE, 1).await;
    rig.proxy.kill();
    rig.proxy.restart().await;
    let all = receiver.until_taken(LONG, 1).await;
    assert!(all.len() == 2 && all[0].id == all[1].id, "{all:#?}");
}
