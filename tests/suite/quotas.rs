//! One caller cannot take all the room for tasks and sessions.

use serde_json::json;

use crate::support::client::{Answer, Client};
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_caller_at_its_quota_is_refused_and_others_are_not,
    a_caller_at_its_quota_of_bytes_is_refused,
    a_call_that_need_not_be_a_task_stays_a_call,
    a_claim_over_the_quota_leaves_nothing,
    all_together_have_a_quota,
);

fn limits(lines: &str) -> Config {
    Config::always().section("limits", lines)
}

fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], -32603, "{}", answer.text);
    assert_eq!(error["data"]["io.raincheck/reason"], "quota");
    assert_eq!(error["data"]["io.raincheck/effect"], "none");
}

async fn a_caller_at_its_quota_is_refused_and_others_are_not(era: Era) {
    let rig = Rig::start(era, limits("tasks_per_caller = 2")).await;
    let (greedy, other) = (
        rig.client().named("Bearer a"),
        rig.client().named("Bearer b"),
    );
    let task = greedy.call("echo", json!({})).await.into_task();
    greedy.call("echo", json!({})).await.into_task();
    greedy.until(&task, "completed").await;
    let ran = rig.upstream.requests("tools/call").len();
    for _ in 0..3 {
        assert_refused(&greedy.call("fail", json!({})).await);
    }
    other.call("echo", json!({})).await.into_task();
    rig.client().call("echo", json!({})).await.into_task();
    rig.upstream.until_received("tools/call", ran + 2).await;
    let calls = rig.upstream.requests("tools/call");
    assert!(calls.iter().all(|call| !call.text().contains("\"fail\"")));
}

async fn a_caller_at_its_quota_of_bytes_is_refused(era: Era) {
    let rig = Rig::start(era, limits("task_bytes_per_caller = \"64KiB\"")).await;
    let (greedy, other) = (
        rig.client().named("Bearer a"),
        rig.client().named("Bearer b"),
    );
    // The result counts when it is there.
    let task = greedy
        .call("big", json!({"bytes": 100_000}))
        .await
        .into_task();
    greedy.until(&task, "completed").await;
    assert_refused(&greedy.call("echo", json!({})).await);
    other.call("echo", json!({})).await.into_task();
}

async fn a_call_that_need_not_be_a_task_stays_a_call(era: Era) {
    let config = Config::auto("50ms").section("limits", "tasks_per_caller = 1");
    let rig = Rig::start(era, config).await;
    rig.client().call("held", json!({})).await.into_task();
    let slow = rig.client().call("slow", json!({"ms": 500})).await;
    assert_eq!(slow.into_text(), "slept");
}

async fn a_claim_over_the_quota_leaves_nothing(era: Era) {
    let rig = Rig::start(era, limits("tasks_per_caller = 1")).await;
    let keyed = |key: &str| {
        let call = rig.client().calling("echo", json!({}));
        call.header("idempotency-key", key).send()
    };
    let first = keyed("a").await.into_task();
    rig.client().until(&first, "completed").await;
    assert_refused(&keyed("b").await);
    // Who comes back to what is there gets it.
    assert_eq!(keyed("a").await.into_task().id, first.id);
}

async fn all_together_have_a_quota(era: Era) {
    let rig = Rig::start(era, limits("tasks = 2\ntasks_per_caller = 5")).await;
    let of = |name| -> Client { rig.client().named(name) };
    of("Bearer a").call("echo", json!({})).await.into_task();
    of("Bearer b").call("echo", json!({})).await.into_task();
    assert_refused(&of("Bearer c").call("echo", json!({})).await);
}
