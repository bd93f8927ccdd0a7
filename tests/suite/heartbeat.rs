//! Clients that wait while a modern server says nothing.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::facade::Session;
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
