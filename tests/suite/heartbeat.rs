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
