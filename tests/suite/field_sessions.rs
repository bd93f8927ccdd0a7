//! Sessions that the server lost, and how servers say so: every client goes on, and nothing runs twice.

use serde_json::{Value, json};

use crate::stdio_front::{Launched, call};
use crate::support::session::{NEWEST, Session};
use crate::support::upstream::Upstream;
use crate::support::{Config, Era, Rig};

/// Status and words. With the first five, the status and the words prove that nothing ran.
const LOST: [(u16, &str); 14] = [
    (404, r#"{"code":-32001,"message":"Session not found"}"#),
    (404, "gone"),
    (
        400,
        r#"{"code":-32000,"message":"Bad Request: No valid session ID provided"}"#,
    ),
    (410, r#"{"code":-32000,"message":"Session expired"}"#),
    (410, "unknown session"),
    (400, r#"{"code":-32602,"message":"Invalid session ID"}"#),
    (401, r#"{"code":-32000,"message":"Session expired"}"#),
    (401, "session terminated"),
    (410, ""),
    (500, r#"{"code":-32000,"message":"Session expired"}"#),
    (500, "KeyError: no such session"),
    (200, r#"{"code":-32000,"message":"Session not found"}"#),
    (200, r#"{"code":-32002,"message":"Server not initialized"}"#),
    (
        422,
        r#"{"code":-32603,"message":"Mcp-Session-Id is unknown: bad session"}"#,
    ),
];

fn echo(nonce: &str) -> Value {
    json!({"text": "x", "nonce": nonce})
}

#[tokio::test]
async fn a_call_of_a_modern_client_runs_once_on_another_session() {
    for (status, words) in LOST {
        let rig = Rig::start(Era::Legacy, Config::auto("20s")).await;
        rig.upstream.refuse_lost(status, words);
        for nonce in ["a", "b", "c"] {
            let answer = rig.client().call("echo", echo(nonce)).await;
            assert_eq!(answer.into_text(), "x", "{status} {words}");
            assert_eq!(rig.upstream.tally(nonce).started, 1, "{status} {words}");
            rig.upstream.forget_sessions();
        }
    }
}

#[tokio::test]
async fn a_task_runs_once_on_another_session() {
    for mode in ["pool", "caller"] {
        for (status, words) in LOST {
            let config = Config::always().section("upstream", &format!("session = {mode:?}"));
            let rig = Rig::start(Era::Legacy, config).await;
            rig.upstream.refuse_lost(status, words);
            for nonce in ["a", "b"] {
                let task = rig.client().call("echo", echo(nonce)).await.into_task();
                let state = rig.client().until(&task, "completed").await;
                assert_eq!(
                    state["result"]["content"][0]["text"], "x",
                    "{status} {words}"
                );
                assert_eq!(rig.upstream.tally(nonce).started, 1, "{status} {words}");
                rig.upstream.forget_sessions();
            }
        }
    }
}

/// The client of a pipe knows nothing of its session, so raincheck opens it again.
#[tokio::test]
async fn a_client_on_a_pipe_goes_on() {
    for config in [Config::always(), Config::never()] {
        for (status, words) in LOST {
            let upstream = Upstream::start(Era::Legacy).await;
            upstream.refuse_lost(status, words);
            let config = config.clone().terms("companion_tools = false");
            let mut client = Launched::new(config, &upstream);
            client.initialize().await;
            for (id, nonce) in [(1, "a"), (2, "b")] {
                let call = call("echo", echo(nonce));
                let answer = client.request(json!(id), "tools/call", call).await;
                let text = &answer["result"]["content"][0]["text"];
                assert_eq!(*text, "x", "{status} {words} {answer}");
                assert_eq!(upstream.tally(nonce).started, 1, "{status} {words}");
                upstream.forget_sessions();
            }
            client.ended().await;
        }
    }
}

/// A client over HTTP begins a session anew when it gets 404. Its call, which raincheck carries on that session, ends so
/// whatever the server said.
#[tokio::test]
async fn a_legacy_client_gets_what_the_protocol_says() {
    for (status, words) in LOST.into_iter().filter(|(status, _)| *status != 200) {
        let carried = Config::auto("10s").terms("companion_tools = true\nfallback_after = \"20s\"");
        let rig = Rig::start(Era::Legacy, carried).await;
        rig.upstream.refuse_lost(status, words);
        let session = Session::open(rig.client(), NEWEST).await;
        rig.upstream.forget_sessions();
        let answer = session.calling(1, "echo", echo("a")).send().await;
        let expected = if status == 401 { 401 } else { 404 };
        assert_eq!(answer.status, expected, "{status} {words}: {}", answer.body);
        assert_eq!(rig.upstream.tally("a").started, 0, "{status} {words}");
        let again = Session::open(rig.client(), NEWEST).await;
        let answer = again.calling(2, "echo", echo("b")).send().await;
        assert_eq!(answer.status, 200, "{status} {words}");
    }
}

/// The tool speaks of a session of its own, and has run.
#[tokio::test]
async fn words_of_a_tool_are_no_lost_session() {
    let rig = Rig::start(Era::Legacy, Config::auto("20s")).await;
    for nonce in ["a", "b"] {
        let arguments = json!({"nonce": nonce, "text": "database session not found"});
        let answer = rig.client().call("fail", arguments).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(rig.upstream.requests("initialize").len(), 1);
    }
}
