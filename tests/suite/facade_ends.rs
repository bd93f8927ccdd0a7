//! Legacy sessions in front of a modern-only server that hangs, and calls there that end before they are answered.

use serde_json::{Value, json};

use crate::facade::{Session, question};
use crate::support::stream::Stream;
use crate::support::{Config, Era, PATIENCE, Rig, within};

/// The error that a call ends with. Its question may be taken back before.
async fn error_after(stream: &mut Stream, asked: &Value) -> Value {
    let mut last = stream.next().await;
    if last["method"] == "notifications/cancelled" {
        assert_eq!(last["params"]["requestId"], asked["id"]);
        last = stream.next().await;
    }
    last["error"].take()
}

#[track_caller]
fn assert_ended(error: &Value, reason: &str) {
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(error["data"]["io.raincheck/reason"], reason, "{error}");
    assert_eq!(error["data"]["io.raincheck/effect"], "unknown", "{error}");
}

#[tokio::test]
async fn a_question_that_nobody_answers_ends_with_its_calls_time() {
    let config = Config::never().terms("max_duration = \"1s\"");
    let rig = Rig::start(Era::Modern, config).await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let asked = question(&mut stream).await;
    assert_ended(&error_after(&mut stream, &asked).await, "deadline");
}

#[tokio::test]
async fn a_drain_ends_a_call_that_waits_for_its_client() {
    let config = Config::always().section("drain", "grace = \"3s\"");
    let mut rig = Rig::start(Era::Modern, config).await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let asked = question(&mut stream).await;
    rig.proxy.terminate();
    assert_ended(&error_after(&mut stream, &asked).await, "shutdown");
    let ended = within(PATIENCE, "the process's end", rig.proxy.ended()).await;
    assert!(ended.success());
}

/// A client's patience with a handshake is shorter than a slow server's answer.
#[tokio::test]
async fn a_server_that_does_not_say_what_it_is_now_was_known_before() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    Session::open(rig.client()).await;
    rig.upstream.hang();
    Session::open(rig.client()).await;
}
