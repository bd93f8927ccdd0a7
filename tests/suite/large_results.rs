//! Results above 1 MiB, for clients that refuse an event of that size: the official Python client 2.x and
//! `FastMCP` 4, known by the name of their HTTP library.

use serde_json::json;

use crate::support::client::{Answer, Client};
use crate::support::{Config, Era, Rig};

const LIMITED: &str = "python-httpx2/2.16.2";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

fn kind(answer: &Answer) -> &str {
    answer.headers["content-type"].to_str().unwrap()
}

/// A client cannot resume a stream of 2026-07-28, so there is no stream while the server says nothing.
#[tokio::test]
async fn a_modern_answer_stays_one_body_while_nothing_is_said() {
    let rig = Rig::start(Era::Legacy, Config::auto("10s")).await;
    let client = rig.client().without_tasks();
    let answer = client.call("slow", json!({"ms": 4_000})).await;
    assert_eq!(kind(&answer), JSON);
}

async fn called_over_lines(agent: &str, arguments: serde_json::Value, rule: &str) -> Answer {
    let proxy = Config::auto("10s").tool("slow", rule).run("legacy").await;
    let client = Client::of(proxy.address());
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "mcp", "version": "0.1.0"},
    }});
    let hello = client.post(initialize.to_string()).send().await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let params = json!({"name": "slow", "arguments": arguments, "_meta": {"progressToken": "t"}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let call = client.post(call.to_string());
    let call = call
        .header("mcp-session-id", &session)
        .header("mcp-protocol-version", "2025-11-25")
        .header("user-agent", agent);
    call.send().await
}

/// A stream that was begun by progress would carry the result as one event.
#[tokio::test]
async fn a_large_result_behind_progress_is_a_task() {
    let terms = "companion_tools = true\nfallback_after = \"20s\"\nresult_inline = \"off\"";
    let rig = Rig::start(Era::Legacy, Config::auto("20s").terms(terms)).await;
    for (client, agent, is_task) in [
        (rig.client(), "node", true),
        (rig.client().without_tasks(), LIMITED, true),
        (rig.client().without_tasks(), "node", false),
    ] {
        let nonce = format!("{agent} {is_task}");
        let steps = json!({"n": 1, "then": "huge", "nonce": nonce});
        let call = client.calling("steps", steps).edit(|message| {
            message["params"]["_meta"]["progressToken"] = json!("t");
        });
        let mut stream = call.header("user-agent", agent).stream().await;
        stream.next_of("notifications/progress").await;
        rig.upstream.release(&nonce);
        let answer = stream.next().await;
        let result = &answer["result"];
        let id = result["taskId"].as_str();
        let ticket = result["structuredContent"]["ticket"].as_str();
        assert_eq!(id.or(ticket).is_some(), is_task, "{nonce}");
        if let Some(ticket) = ticket {
            let result = client.call("task_result", json!({"ticket": ticket})).await;
            assert_eq!(kind(&result), JSON);
            assert_eq!(result.into_text().len(), 2 << 20);
        }
    }
}

/// In 2025-11-25 the early stream is what a call survives by: only who cannot bear it goes without.
#[tokio::test]
async fn a_legacy_stream_begins_late_only_for_who_cannot_bear_it() {
    let arguments = json!({"ms": 1_500, "says": "x", "times": 2 << 20});
    let silent = "heartbeat = false";
    let answer = called_over_lines(LIMITED, arguments.clone(), silent).await;
    assert_eq!(kind(&answer), JSON);
    assert!(answer.text.len() > 2 << 20);
    let answer = called_over_lines("node", arguments, silent).await;
    assert_eq!(kind(&answer), EVENTS);
    // Who shall hear that the call runs hears it on a stream.
    let answer = called_over_lines(LIMITED, json!({"ms": 1_500}), "heartbeat = true").await;
    assert_eq!(kind(&answer), EVENTS);
}
