//! Legacy sessions in front of a modern-only server that hangs, and calls there that end before they are answered.

use serde_json::{Value, json};

use crate::hosted::{Session, question};
use crate::support::session::accept;
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
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with("; it may have run, look before calling again"));
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

/// It is called again after longer and longer pauses, as long as the call may last.
#[tokio::test]
async fn a_server_that_only_wants_to_be_called_again_is_waited_for() {
    let config = Config::never().terms("max_duration = \"6s\"");
    let rig = Rig::start(Era::Modern, config).await;
    let session = Session::open(rig.client()).await;
    let come_back = |id, times: u32| session.calling(id, "come_back", json!({"times": times}));
    let answer = come_back(1, 2).send().await.json();
    assert_eq!(answer["result"]["content"][0]["text"], "here", "{answer}");
    assert_eq!(rig.upstream.tally("come_back").started, 3);
    let answer = come_back(2, 1000).send().await.json();
    assert_ended(&answer["error"], "deadline");
    // At once, after 1 s and after 3 s.
    assert_eq!(rig.upstream.tally("come_back").started, 3 + 3);
}

#[tokio::test]
async fn a_server_that_asks_without_end_is_not_asked_without_end() {
    let rig = Rig::start(Era::Modern, Config::never()).await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask_on", json!({})).stream().await;
    for _ in 0..16 {
        let asked = question(&mut stream).await;
        assert_eq!(session.reply(&asked, accept("Ada")).await, 202);
    }
    let error = stream.next().await["error"].take();
    assert_ended(&error, "upstream_invalid");
    assert_eq!(rig.upstream.tally("ask_on").started, 17);
}

/// The list of tools says which headers a call needs, and may have to be read first.
#[tokio::test]
async fn a_call_is_cancelled_while_the_list_of_tools_is_read() {
    let rig = Rig::start(Era::Modern, Config::never()).await;
    let session = Session::open(rig.client()).await;
    rig.upstream.hang();
    let call = tokio::spawn(session.calling(5, "echo", json!({})).stream());
    rig.upstream.until_received("tools/list", 1).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 5}});
    assert_eq!(session.post(&cancel).send().await.status, 202);
    let mut stream = within(PATIENCE, "the stream of the call", call)
        .await
        .unwrap();
    assert_eq!(stream.next_or_end().await, None);
    assert_eq!(rig.upstream.requests("tools/call").len(), 0);
}

/// While its client answers, the call is not at the server, and another call may take its place there.
#[tokio::test]
async fn a_call_that_was_answered_waits_for_its_turn_again() {
    let config = Config::always().section("upstream", "concurrency = 1");
    let rig = Rig::start(Era::Modern, config).await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let asked = question(&mut stream).await;
    let mut held = session.calling(2, "held", json!({})).stream().await;
    rig.upstream.until_started("held").await;
    assert_eq!(session.reply(&asked, accept("Ada")).await, 202);
    // What came after the answer was answered, and the call was not sent.
    assert_eq!(session.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(rig.upstream.tally("ask").started, 1);
    rig.upstream.release("held");
    held.next_of_answer().await;
    let answer = stream.next_of_answer().await;
    assert_eq!(answer["result"]["content"][0]["text"], "Ada", "{answer}");
}

/// Its client hears what it would have to declare, whether it said so before or says so now.
#[tokio::test]
async fn a_question_that_the_client_cannot_be_asked_names_what_it_needs() {
    let rig = Rig::start(Era::Modern, Config::never()).await;
    let mute = Session::open(rig.client()).await;
    let unasked = mute.calling(1, "sample", json!({})).send().await.json();
    let sampling = json!({"sampling": {}});
    let liar = Session::declaring(rig.client(), "2025-11-25", sampling.clone()).await;
    let mut stream = liar.calling(1, "sample", json!({})).stream().await;
    let asked = stream.next().await;
    assert_eq!(asked["method"], "sampling/createMessage", "{asked}");
    let error = json!({"code": -32601, "message": "Method not found"});
    let refusal = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
    assert_eq!(liar.post(&refusal).send().await.status, 202);
    for answer in [unasked, stream.next().await] {
        let error = &answer["error"];
        assert_eq!(error["code"], -32021, "{answer}");
        assert_eq!(error["data"]["requiredCapabilities"], sampling, "{answer}");
        let message = error["message"].as_str().unwrap();
        assert!(message.ends_with("; it may have run, look before calling again"));
    }
}

/// A client's patience with a handshake is shorter than a slow server's answer.
#[tokio::test]
async fn a_server_that_does_not_say_what_it_is_now_was_known_before() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    Session::open(rig.client()).await;
    rig.upstream.hang();
    Session::open(rig.client()).await;
}
