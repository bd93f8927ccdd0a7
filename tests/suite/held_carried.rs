//! Calls of legacy sessions that raincheck carries itself, cut off and come back to.

use serde_json::{Value, json};

use crate::held::{Session, assert_text, back_at, primed, rest};
use crate::support::client::Client;
use crate::support::{Config, Era, Proxy, Rig};

/// Carried, and no tickets while the tests look.
fn patient() -> Config {
    Config::auto("10s").terms("companion_tools = true\nfallback_after = \"20s\"")
}

async fn rig(config: Config) -> (Rig, Session) {
    let rig = Rig::start(Era::Legacy, config).await;
    let session = Session::open(rig.client()).await;
    (rig, session)
}

fn answer(question: &Value, name: &str) -> Value {
    let result = json!({"action": "accept", "content": {"name": name}});
    json!({"jsonrpc": "2.0", "id": question["id"], "result": result})
}

#[tokio::test]
async fn a_call_that_may_become_a_ticket_is_come_back_to() {
    let (rig, session) = rig(patient()).await;
    let call = json!({"n": 2, "then": "ask"});
    let mut stream = session.calling("steps", call).stream().await;
    let mut last = primed(&mut stream).await;
    for step in [1, 2] {
        drop(stream);
        stream = back_at(&session, &last).await;
        let event = stream.event().await.unwrap();
        assert_eq!(event.message["params"]["progress"], step);
        assert_eq!(event.message["params"]["progressToken"], "t");
        last = event.id.unwrap();
    }
    drop(stream);
    rig.upstream.release("steps");
    let mut stream = back_at(&session, &last).await;
    let question = stream.event().await.unwrap().message;
    assert_eq!(question["method"], "elicitation/create");
    let answered = session.post(&answer(&question, "Ada")).send().await;
    assert_eq!(answered.status, 202);
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_text(&events[0], "Ada");
    assert_eq!(rig.upstream.tally("steps").started, 1);
}

#[tokio::test]
async fn a_ticket_waits_for_a_client_that_was_cut_off() {
    let config = patient().tool("steps", "fallback_after = \"500ms\"");
    let (_rig, session) = rig(config).await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    drop(stream);
    let events = rest(&mut back_at(&session, &first).await).await;
    let ticket = &events.last().unwrap().message["result"]["structuredContent"];
    assert_eq!(ticket["state"], "working", "{events:?}");
    assert_eq!(rest(&mut back_at(&session, &first).await).await, events);
}

/// Its plain call is waited for, whatever becomes of the connection.
#[tokio::test]
async fn a_tool_that_runs_only_as_a_task_is_come_back_to() {
    let (rig, session) = rig(Config::auto("10s")).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(session.post(&list).send().await.status, 200);
    let mut stream = session
        .calling("only", json!({"nonce": "h"}))
        .stream()
        .await;
    let first = primed(&mut stream).await;
    drop(stream);
    let mut stream = back_at(&session, &first).await;
    rig.upstream.release("h");
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_text(&events[0], "theirs");
    assert_eq!(rest(&mut back_at(&session, &first).await).await, events);
    assert_eq!(rig.upstream.tally("h").started, 1);
}

#[tokio::test]
async fn a_client_that_reads_no_streams_gets_one_body() {
    let (rig, session) = rig(patient()).await;
    let call = session.calling("steps", json!({"n": 2}));
    let call = tokio::spawn(call.header("accept", "application/json").send());
    rig.upstream.until_started("steps").await;
    rig.upstream.release("steps");
    let answer = call.await.unwrap();
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.json()["result"]["content"][0]["text"], "stepped");
}

/// The clock of a client that waits begins anew with progress.
#[tokio::test]
async fn a_silent_server_is_heard_to_run() {
    let config = patient().tool("{held,only}", "heartbeat = true\nfallback_after = \"20s\"");
    let (rig, session) = rig(config).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(session.post(&list).send().await.status, 200);
    let mut held = session.calling("held", json!({})).stream().await;
    let only = session.calling("only", json!({"nonce": "h"}));
    let only = only.edit(|message| message["id"] = json!(8));
    let mut only = only.stream().await;
    for stream in [&mut held, &mut only] {
        let note = stream.next_of("notifications/progress").await;
        assert_eq!(note["params"]["progressToken"], "t");
        assert_eq!(note["params"]["message"], "still running");
    }
    rig.upstream.release("held");
    rig.upstream.release("h");
    assert_text(rest(&mut held).await.last().unwrap(), "released");
    assert_eq!(rest(&mut only).await.last().unwrap().message["id"], 8);
}

#[tokio::test]
async fn a_call_of_a_program_is_come_back_to() {
    let proxy: Proxy = patient().run("legacy").await;
    let session = Session::open(Client::of(proxy.address())).await;
    let call = json!({"nonce": "a"});
    let mut stream = session.calling("hold", call).stream().await;
    let first = primed(&mut stream).await;
    drop(stream);
    let mut stream = back_at(&session, &first).await;
    let release = json!({"name": "release", "arguments": {"nonces": ["a"]}});
    let release = json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": release});
    assert_eq!(session.post(&release).send().await.json()["id"], 8);
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_text(&events[0], "a");
}
