//! No call lasts longer than it may.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::shape::assert_state;
use crate::support::{Config, Era, Rig, in_both_eras, within};

in_both_eras!(
    a_task_over_its_time_fails_and_the_server_is_told,
    a_question_that_nobody_answers_ends_the_task,
);

const SOON: Duration = Duration::from_secs(3);

#[track_caller]
fn assert_deadline(error: &Value) {
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(error["data"]["io.raincheck/reason"], "deadline", "{error}");
    assert_eq!(error["data"]["io.raincheck/effect"], "unknown", "{error}");
}

async fn a_task_over_its_time_fails_and_the_server_is_told(era: Era) {
    for config in [Config::always(), Config::auto("20ms")] {
        let rig = Rig::start(era, config.terms("max_duration = \"1s\"")).await;
        let client = rig.client();
        let task = client.call("never", json!({})).await.into_task();
        let state = client.until(&task, "failed").await;
        assert_state(&state, "failed");
        assert_deadline(&state["error"]);
        within(SOON, "the server is told", rig.upstream.until_idle()).await;
        assert_eq!(rig.upstream.tally("never").cancelled, 1);
    }
}

async fn a_question_that_nobody_answers_ends_the_task(era: Era) {
    for terms in ["max_duration = \"1s\"", "input_timeout = \"1s\""] {
        let rig = Rig::start(era, Config::always().terms(terms)).await;
        let client = rig.client();
        let task = client.call("ask", json!({})).await.into_task();
        client.until(&task, "input_required").await;
        let state = client.until(&task, "failed").await;
        assert_state(&state, "failed");
        assert_eq!(
            state["error"]["data"]["io.raincheck/reason"], "deadline",
            "{terms}: {state}"
        );
        within(
            SOON,
            "nothing runs at the server",
            rig.upstream.until_idle(),
        )
        .await;
    }
}

/// In front of a modern server a plain call passes; its time is the server's business.
#[tokio::test]
async fn a_held_call_over_its_time_is_answered() {
    let rig = Rig::start(Era::Legacy, Config::never().terms("max_duration = \"1s\"")).await;
    let answer = rig.client().call("never", json!({})).await;
    assert_deadline(&answer.json()["error"]);
    within(SOON, "the server is told", rig.upstream.until_idle()).await;
}
