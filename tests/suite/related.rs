//! `relatedTaskIds`: a client may say which of its tasks a request is about. The server hears of none that
//! is raincheck's.

use std::fmt::Write as _;

use serde_json::json;

use crate::support::client::Request;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    no_id_of_ours_reaches_the_server,
    a_request_that_passes_names_no_task_of_ours,
    a_list_that_is_none_does_not_pass_either,
);

const RELATED: &str = "io.modelcontextprotocol/relatedTaskIds";

pub(super) fn related(request: Request, ids: &serde_json::Value) -> Request {
    request.edit(|message| message["params"]["_meta"][RELATED] = ids.clone())
}

fn assert_unnamed(rig: &Rig, id: &str) {
    for received in rig.upstream.received() {
        let text = String::from_utf8_lossy(&received.body).into_owned();
        assert!(!text.contains(id) && !text.contains(RELATED), "{text}");
    }
}

async fn no_id_of_ours_reaches_the_server(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let first = client.call("held", json!({})).await.into_task();
    let ids = json!([first.id, "other"]);
    let second = related(client.calling("echo", json!({"text": "x"})), &ids);
    let second = second.send().await.into_task();
    client.until(&second, "completed").await;
    assert_unnamed(&rig, &first.id);
    // It is about the task, and does nothing to it.
    assert_eq!(client.get(&first).await["status"], "working");
}

async fn a_request_that_passes_names_no_task_of_ours(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let plain = client.clone().without_tasks();
    let ids = json!([task.id]);
    for request in [
        plain.calling("echo", json!({"text": "x"})),
        plain.request("tools/list", json!({})),
    ] {
        let answer = related(request, &ids).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    assert_unnamed(&rig, &task.id);
}

async fn a_list_that_is_none_does_not_pass_either(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client().without_tasks();
    for strange in [json!("x"), json!([1]), json!({"a": 1}), json!(null)] {
        let call = related(client.calling("echo", json!({"text": "x"})), &strange);
        assert_eq!(call.send().await.into_text(), "x");
    }
    assert_unnamed(&rig, "never");
    let twice = client.calling("echo", json!({})).replace(
        "\"_meta\":{",
        &format!("\"_meta\":{{\"{RELATED}\":[],\"{RELATED}\":[\"x\"],"),
    );
    assert_eq!(twice.send().await.refusal(), (400, -32600));
}

/// A server that makes tasks of its own gets the ids of those.
#[tokio::test]
async fn the_ids_of_the_servers_own_tasks_pass() {
    let config = Config::always()
        .tool("echo", "mode = \"never\"")
        .section("upstream", "native_tasks = \"pass\"");
    let rig = Rig::start(Era::Modern, config).await;
    rig.upstream.make_tasks();
    let client = rig.client();
    let ours = client.call("held", json!({})).await.into_task();
    let theirs = "786512e2-9e0d-44bd-8f29-789f320fe840";
    let unknown = uuid::Uuid::new_v4().to_string();
    let eve = client.clone().named("Bearer eve");
    let foreign = eve.call("held", json!({})).await.into_task();
    let mut ids = vec![
        json!(foreign.id.to_uppercase()),
        json!(format!(" {{{}}}", ours.id)),
        json!(ours.id),
        json!(theirs),
        json!(foreign.id),
        json!("own-1"),
    ];
    // What was said before, and what is beyond the limit, is ignored.
    ids.extend((0..20).map(|_| json!(theirs)));
    ids.push(json!(unknown));
    ids.extend((0..20).map(|number| json!(format!("beyond-{number}"))));
    let call = related(client.calling("echo", json!({"text": "x"})), &json!(ids));
    assert_eq!(call.send().await.into_text(), "x");
    let calls = rig.upstream.requests("tools/call");
    let call = calls
        .iter()
        .find(|call| call.json()["params"]["name"] == "echo");
    let call = call.unwrap();
    let passed = call.json()["params"]["_meta"][RELATED].take();
    let passed: Vec<_> = passed.as_array().unwrap().clone();
    // To the client an id of another caller is as one that nobody has: it gets the same answer.
    assert_eq!(passed[..3], [json!(theirs), json!("own-1"), json!(unknown)]);
    assert_eq!(
        passed.len(),
        12,
        "16 that differ, without the four of raincheck"
    );
    let said = call.text().to_lowercase();
    assert!(!said.contains(&ours.id) && !said.contains(&foreign.id));
}

/// On a session, too, and nothing else of the message is another then.
#[tokio::test]
async fn a_session_names_no_task_of_ours() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    }});
    let opened = client.post(initialize.to_string()).send().await;
    let session = opened.headers["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let on_session = |request: Request| request.header("mcp-session-id", &session);
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    on_session(client.post(ready)).send().await;
    let named = format!(r#","{RELATED}":["{}"]"#, task.id);
    let call = |named: &str| {
        format!(
            r#"{{ "jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","_meta":{{"a":1.10{named}}},"arguments":{{"text":"x"}}}}}}"#
        )
    };
    let answer = on_session(client.post(call(&named))).send().await;
    assert_eq!(answer.json()["result"]["content"][0]["text"], "x");
    let calls = rig.upstream.requests("tools/call");
    assert_eq!(calls.last().unwrap().text(), call(""));
    let spelled = |text: &str| {
        text.replace(RELATED, &escaped(RELATED))
            .replace(&task.id, &escaped(&task.id))
    };
    for spelling in [
        spelled(&call(&named)),
        spelled(&call(&named)).replace("_meta", &escaped("_meta")),
        call(&named).replace(RELATED, &RELATED.to_uppercase()),
        call(&named).replace("_meta", "_META"),
        call(&format!("{named}{named}")),
        call("").replace(
            "\"name\"",
            &format!("\"_meta\":{{\"b\":1{named}}},\"name\""),
        ),
    ] {
        let answer = on_session(client.post(spelling.clone())).send().await;
        assert_eq!(
            answer.json()["result"]["content"][0]["text"],
            "x",
            "{spelling}"
        );
    }
    let cancel = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"_meta":{{"a":1{named}}}}}}}"#
    );
    on_session(client.post(spelled(&cancel))).send().await;
    for unclear in [
        format!("[{}]", call(&named)),
        format!("[{}]", spelled(&call(&named))),
        call(&named).replace("\"id\":7", "\"id\":7,\"id\":8"),
        call(&named).replace("1.10", "NaN"),
        call(&named).replace("\"tools/call\"", "[\"tools/call\"]"),
        call(&named).replace("\"method\":\"tools/call\"", "\"result\":{}"),
    ] {
        let refused = on_session(client.post(unclear)).send().await;
        assert_eq!(refused.status, 400, "{}", refused.body);
    }
    let plain = on_session(client.post(format!("[{}]", call(""))))
        .send()
        .await;
    assert!(!plain.body.contains("names tasks"), "{}", plain.body);
    assert_unnamed_in_any_spelling(&rig, &task.id);
}

/// No request to the server has the id or the name, however it is written.
fn assert_unnamed_in_any_spelling(rig: &Rig, id: &str) {
    for received in rig.upstream.received() {
        let text = unescaped(&String::from_utf8_lossy(&received.body));
        assert!(
            !text.contains(id) && !text.to_lowercase().contains("relatedtaskids"),
            "{text}"
        );
    }
}

/// A text as JSON may write it.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        write!(out, "\\u{:04x}", u32::from(letter)).unwrap();
    }
    out
}

fn unescaped(text: &str) -> String {
    let mut parts = text.split("\\u");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (hex, rest) = part.split_at(part.len().min(4));
        let letter = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
        out.extend(letter);
        out.push_str(rest);
    }
    out
}
