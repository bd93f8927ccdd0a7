//! Clients that wait while a modern server says nothing.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use crate::counted::until_at;
use crate::hosted::Session;
use crate::support::operator::with_operators;
use crate::support::session::NEWEST;
use crate::support::stream::Stream;
use crate::support::{Config, Era, Rig};

/// Clients were seen that give up after this time without progress.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(10);

/// Counted from the call, of which nothing is heard for its first seconds.
#[tokio::test]
async fn a_client_of_either_era_hears_of_its_call_in_time() {
    let config = Config::never().tool("held", "heartbeat = true");
    let rig = Rig::start(Era::Modern, config).await;
    let session = Session::open(rig.client()).await;
    let legacy = session.calling(1, "held", json!({"nonce": "legacy"}));
    let modern = rig.client().without_tasks();
    let modern = modern.calling("held", json!({"nonce": "modern"}));
    let modern = modern.edit(|message| message["params"]["_meta"]["progressToken"] = json!("mine"));
    let asked = Instant::now();
    let (legacy, modern) = tokio::join!(legacy.stream(), modern.stream());
    for mut stream in [legacy, modern] {
        let note = stream.next_of("notifications/progress").await;
        let waited = asked.elapsed();
        assert_eq!(note["params"]["progressToken"], "mine");
        assert_eq!(note["params"]["message"], "still running");
        assert!(waited < SHORTEST_PATIENCE, "after {waited:?}");
    }
    rig.upstream.release("legacy");
    rig.upstream.release("modern");
}

/// The stream has begun, and passes as the server writes it.
#[tokio::test]
async fn a_stream_that_passes_has_progress_of_ours_between_its_events() {
    let config = Config::never().tool("steps", "heartbeat = true");
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client().without_tasks();
    let call = client.calling("steps", json!({"n": 2, "nonce": "steps"}));
    let call = call.edit(|message| message["params"]["_meta"]["progressToken"] = json!("mine"));
    let mut stream = call.stream().await;
    for step in 1..=2 {
        let note = stream.next().await;
        assert_eq!(note["params"]["progress"], step);
        assert_eq!(note["params"]["progressToken"], "mine");
    }
    let silent = Instant::now();
    let note = stream.next().await;
    let waited = silent.elapsed();
    assert_eq!(note["params"]["message"], "still running");
    assert_eq!(note["params"]["progressToken"], "mine");
    let progress = note["params"]["progress"].as_f64().unwrap();
    assert!(progress > 2.0 && progress < 3.0, "{progress}");
    assert!(waited < SHORTEST_PATIENCE, "after {waited:?}");
    rig.upstream.release("steps");
    let answer = stream.next().await;
    assert_eq!(answer["result"]["content"][0]["text"], "stepped");
    let sent = rig.upstream.requests("tools/call");
    let said = sent[0].json();
    let token = &said["params"]["_meta"]["progressToken"];
    assert_eq!(token, "mine", "the call passed");
}

#[tokio::test]
async fn a_stream_that_passes_and_breaks_off_ends_with_an_error() {
    let config = Config::never().tool("steps", "heartbeat = true");
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client().without_tasks();
    let arguments = json!({"n": 1, "nonce": "steps", "then": "break"});
    let call = client.calling("steps", arguments);
    let call = call.edit(|message| message["params"]["_meta"]["progressToken"] = json!("mine"));
    let mut stream = call.stream().await;
    assert_eq!(stream.next().await["params"]["progress"], 1);
    rig.upstream.release("steps");
    let error = &stream.next().await["error"];
    assert_eq!(error["data"]["io.raincheck/reason"], "upstream_reset");
    assert_eq!(error["data"]["io.raincheck/effect"], "unknown");
}

/// A call that is sent progress of raincheck's own, which keeps no client waiting for good.
async fn begun(rig: &Rig, tool: &str) -> Stream {
    let client = rig.client().without_tasks();
    let call = client.calling(tool, json!({"n": 1, "nonce": tool}));
    let call = call.edit(|message| message["params"]["_meta"]["progressToken"] = json!("mine"));
    call.stream().await
}

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["io.raincheck/reason"]
        .as_str()
        .unwrap_or_default()
}

/// Silent before its head, or within its stream.
#[tokio::test]
async fn a_call_that_passes_ends_at_its_time_limit() {
    let config = with_operators(Config::never());
    let config = config.tool("{held,steps}", "heartbeat = true\nmax_duration = \"1s\"");
    let rig = Rig::start(Era::Modern, config).await;
    for tool in ["held", "steps"] {
        let answer = begun(&rig, tool).await.next_of_answer().await;
        assert_eq!(reason(&answer), "deadline", "{answer}");
        rig.upstream
            .until(tool, "cancelled", |tally| tally.cancelled == 1)
            .await;
        let labels = format!(r#"effect="unknown",reason="deadline",tool="{tool}""#);
        let failed = format!("raincheck_calls_failed_total{{{labels}}}");
        until_at(&rig.proxy, &failed, 1.0).await;
        let labels = format!(
            r#"error_type="-32603",gen_ai_tool_name="{tool}",mcp_method_name="tools/call",mcp_protocol_version="2026-07-28",network_transport="tcp",rpc_response_status_code="-32603""#
        );
        let measured = format!("mcp_server_operation_duration_seconds_count{{{labels}}}");
        until_at(&rig.proxy, &measured, 1.0).await;
    }
}

/// The end of a connection says nothing to it.
#[tokio::test]
async fn a_legacy_server_is_told_of_the_time_limit() {
    let config = Config::never().tool("held", "heartbeat = true\nmax_duration = \"1s\"");
    let rig = Rig::start(Era::Legacy, config).await;
    rig.upstream.have_no_sessions();
    let params = json!({"name": "held", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let call = rig.client().post(call.to_string());
    let call = call.header("mcp-protocol-version", NEWEST);
    let answer = call.stream().await.next_of_answer().await;
    assert_eq!(reason(&answer), "deadline", "{answer}");
    rig.upstream
        .until_received("notifications/cancelled", 1)
        .await;
    let told = rig.upstream.requests("notifications/cancelled");
    assert_eq!(told[0].json()["params"]["requestId"], 7);
    rig.upstream.release("held");
}

#[tokio::test]
async fn a_call_that_passes_fails_before_a_drain_is_over() {
    let config = Config::never().tool("steps", "heartbeat = true");
    let rig = Rig::start(Era::Modern, config.section("drain", "grace = \"3s\"")).await;
    let mut stream = begun(&rig, "steps").await;
    assert_eq!(stream.next().await["params"]["progress"], 1);
    rig.proxy.terminate();
    let from = Instant::now();
    let answer = stream.next().await;
    assert_eq!(reason(&answer), "shutdown", "{answer}");
    let waited = from.elapsed();
    assert!(waited > Duration::from_secs(1), "after {waited:?}");
}

/// The server says something with an id when raincheck has begun the stream, and breaks off. A stream of 2026-07-28 is
/// not resumed, and its server would never answer that.
#[tokio::test]
async fn a_late_stream_that_breaks_off_is_not_asked_for_again() {
    let config = Config::never().tool("steps", "heartbeat = true");
    let rig = Rig::start(Era::Modern, config).await;
    rig.upstream.number_events();
    let arguments = json!({"n": 0, "nonce": "steps", "tick": 8_500, "then": "break"});
    let call = rig.client().without_tasks().calling("steps", arguments);
    let call = call.edit(|message| message["params"]["_meta"]["progressToken"] = json!("mine"));
    let mut stream = call.stream().await;
    stream.next_of("notifications/message").await;
    rig.upstream.release("steps");
    let answer = stream.next_of_answer().await;
    assert_eq!(reason(&answer), "upstream_reset", "{answer}");
    let received = rig.upstream.received();
    assert!(received.iter().all(|one| one.verb != Method::GET));
}
