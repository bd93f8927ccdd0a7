//! Any replica answers for any task, even if another replica carries it.

use serde_json::{Value, json};

use crate::held_replicas::allow_bytes;
use crate::support::client::Task;
use crate::support::pair::{Pair, record_key};
use crate::support::shape::assert_state;
use crate::support::{Era, PATIENCE, eventually, in_both_eras};

in_both_eras!(
    questions_are_answered_anywhere,
    a_cancel_anywhere_reaches_the_server,
    a_listener_anywhere_hears_of_every_change,
    a_parked_call_is_come_back_to_anywhere,
    a_newer_record_is_told_and_not_changed,
    a_full_store_takes_a_cancel,
);

fn answers(asked: &Value, name: &str) -> Value {
    let accept = json!({"action": "accept", "content": {"name": name}});
    let keys = asked["inputRequests"].as_object().unwrap().keys();
    keys.map(|key| (key.clone(), accept.clone())).collect()
}

async fn questions_are_answered_anywhere(era: Era) {
    let pair = Pair::start(era, "").await;
    let task = pair.at_a().call("ask", json!({})).await.into_task();
    let asked = pair.at_b().until(&task, "input_required").await;
    // The same answer at both, and another one, at once: the first counts, all are acknowledged.
    let (at_a, at_b) = (pair.at_a(), pair.at_b());
    let (ann, bob) = (answers(&asked, "ann"), answers(&asked, "bob"));
    let (one, two) = tokio::join!(at_a.update(&task, ann), at_b.update(&task, bob));
    one.assert_acknowledged();
    two.assert_acknowledged();
    let state = pair.at_a().until(&task, "completed").await;
    let said = state["result"]["content"][0]["text"].as_str().unwrap();
    assert!(["ann", "bob"].contains(&said), "{said}");
    let legs = pair.upstream.tally("ask").started;
    assert_eq!(legs, if era == Era::Modern { 2 } else { 1 });
}

async fn a_cancel_anywhere_reaches_the_server(era: Era) {
    let pair = Pair::start(era, "").await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    pair.at_b().cancel(&task).await.assert_acknowledged();
    assert_state(&pair.at_a().get(&task).await, "cancelled");
    pair.upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1)
        .await;
}

async fn a_listener_anywhere_hears_of_every_change(era: Era) {
    let pair = Pair::start(era, "").await;
    let task = pair.at_a().call("ask", json!({})).await.into_task();
    let mut stream = pair.at_b().listen(&[&task]).await;
    let asked = stream.until("input_required").await;
    let update = pair.at_a().update(&task, answers(&asked, "ann")).await;
    update.assert_acknowledged();
    let ended = stream.until("completed").await;
    assert_eq!(ended["result"]["content"][0]["text"], "ann");
}

async fn a_parked_call_is_come_back_to_anywhere(era: Era) {
    let pair = Pair::start(era, "input = \"before_task\"\ngrace_window = \"5s\"").await;
    for tasks in [true, false] {
        let nonce = json!({"nonce": format!("{tasks}")});
        let (mut at_a, mut at_b) = (pair.at_a(), pair.at_b());
        if !tasks {
            (at_a, at_b) = (at_a.without_tasks(), at_b.without_tasks());
        }
        let asked = at_a.call("ask", nonce.clone()).await.into_result();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let again = at_b.calling("ask", nonce).edit(|message| {
            message["params"]["inputResponses"] = answers(&asked, "ann");
            message["params"]["requestState"] = asked["requestState"].clone();
        });
        let answer = again.send().await;
        let said = if tasks {
            let task = answer.into_task();
            let state = at_a.until(&task, "completed").await;
            state["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned()
        } else {
            answer.into_text()
        };
        assert_eq!(said, "ann");
    }
}

/// As while a newer raincheck is rolled back: what is known of the task is told, and what would
/// lose the rest waits as in an outage.
async fn a_newer_record_is_told_and_not_changed(era: Era) {
    let pair = Pair::start(era, "").await;
    let task = pair.at_a().call("ask", json!({})).await.into_task();
    let asked = pair.at_a().until(&task, "input_required").await;
    let record = pair.record(&task).await;
    let newer = record.replacen("1 {", "5 {\"of_tomorrow\":{\"x\":1},", 1);
    assert_ne!(newer, record);
    let mut write = redis::cmd("HSET");
    write.arg(record_key(&task)).arg("d").arg(&newer);
    // With a nonce of its own, as each write has: the owner, which may be about to commit, must not take it for its own.
    write.arg("w").arg(&[7_u8; 16][..]);
    write.exec_async(&mut pair.connect().await).await.unwrap();

    let client = pair.at_b();
    assert_eq!(
        client.get(&task).await["inputRequests"],
        asked["inputRequests"]
    );
    assert_eq!(client.cancel(&task).await.refusal(), (503, -32603));
    let update = client.update(&task, answers(&asked, "ann")).await;
    assert_eq!(update.refusal(), (503, -32603));
    assert_eq!(pair.record(&task).await, newer);
}

/// And an end by the deadline: both free more than they take.
async fn a_full_store_takes_a_cancel(era: Era) {
    let pair = Pair::start(era, "max_duration = \"3s\"").await;
    let client = pair.at_a();
    let held = client.call("held", json!({})).await.into_task();
    let late = client.call("never", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    allow_bytes(&pair.redis, 1);
    pair.at_b().cancel(&held).await.assert_acknowledged();
    assert_state(&client.get(&held).await, "cancelled");
    pair.upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1)
        .await;
    let state = client.until(&late, "failed").await;
    assert_eq!(state["error"]["data"]["io.raincheck/reason"], "deadline");
    // New tasks need room.
    let refused = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(refused.refusal(), (503, -32603));
}

/// No replica can do anything for the task of this record, and the record must not keep other tasks from
/// being handled.
#[tokio::test]
async fn an_unreadable_record_stands_in_nobodys_way() {
    let mut pair = Pair::start(Era::Legacy, "max_duration = \"4s\"").await;
    let client = pair.at_a();
    let broken = client.call("never", json!({})).await.into_task();
    let other = client.call("never", json!({})).await.into_task();
    let mut redis = pair.connect().await;
    let mut write = redis::cmd("HSET");
    write.arg(record_key(&broken)).arg("d").arg("1 {");
    write.exec_async(&mut redis).await.unwrap();
    pair.a.kill();
    pair.at_b().until(&other, "failed").await;
    let mut look = redis::pipe();
    look.cmd("ZCARD").arg("{suite:live}");
    look.cmd("ZCARD").arg("{suite:00}:due");
    let what = "its owner and its deadline are forgotten";
    eventually(PATIENCE, what, async || {
        let answer = look.query_async(&mut redis.clone()).await;
        let (living, due): (u64, u64) = answer.unwrap();
        let forgotten = (living, due) == (1, 0);
        let seen = || format!("{living} owners, {due} deadlines");
        forgotten.then_some(()).ok_or_else(seen)
    })
    .await;
}

/// The call is cancelled at another replica while its owner is frozen. The replica that finds the task tells
/// the server.
#[tokio::test]
async fn a_cancelled_call_of_a_lost_owner_is_cancelled_at_the_server() {
    let pair = Pair::start(Era::Legacy, "").await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.until_resumable(&task).await;
    pair.a.freeze();
    pair.at_b().cancel(&task).await.assert_acknowledged();
    pair.upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1)
        .await;
    pair.a.thaw();
    assert_state(&pair.at_a().get(&task).await, "cancelled");
}

/// As after a commit whose answer was lost for good: the record names an owner who knows nothing
/// of it. Found when the owner goes through its own index, some four times a minute.
#[tokio::test]
async fn a_task_that_its_owner_does_not_carry_is_ended() {
    let pair = Pair::start(Era::Legacy, "").await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    let forgotten = Task::by_id(uuid::Uuid::new_v4().to_string());
    let mut redis = pair.connect().await;
    let record = pair.record(&task).await.replace(&task.id, &forgotten.id);
    let mut copy = redis::cmd("COPY");
    copy.arg(record_key(&task)).arg(record_key(&forgotten));
    copy.exec_async(&mut redis).await.unwrap();
    let mut write = redis::cmd("HSET");
    write.arg(record_key(&forgotten)).arg("d").arg(record);
    write.exec_async(&mut redis).await.unwrap();
    let mut indexes = redis::cmd("KEYS");
    let indexes: Vec<String> = indexes
        .arg("{suite:00}:o:a/*")
        .query_async(&mut redis)
        .await
        .unwrap();
    let mut index = redis::cmd("SADD");
    index.arg(&indexes[0]).arg(&forgotten.id);
    index.exec_async(&mut redis).await.unwrap();

    let what = "the forgotten task is ended";
    pair.until_record(PATIENCE * 2, &forgotten, what, "store_lost")
        .await;
    assert_state(&pair.at_b().get(&forgotten).await, "failed");
    assert_state(&pair.at_b().get(&task).await, "working");
}
