//! What real clients send, and that it is answered under their own id: one row a variation, so that the next report is one more
//! row. Each row is sent by clients of both eras to a server of every kind.

use serde_json::{Value, json};

use crate::field_servers::server::{FieldServer, PLAIN, WAYS};
use crate::support::Config;
use crate::support::client::{Client, Task};
use crate::support::session::{NEWEST, Session};

/// One variation: its name, the id of the request and its arguments, both as they are written.
const CALLS: &[(&str, &str, &str)] = &[
    ("as it should be", "7", r#"{"text":"x"}"#),
    ("a string as id", r#""a/b \u00e9""#, "{}"),
    ("an empty string as id", r#""""#, "{}"),
    ("a number in a string as id", r#""7""#, "{}"),
    ("a negative id", "-7", "{}"),
    ("a fraction as id", "1.5", "{}"),
    ("a whole fraction as id", "7.0", "{}"),
    ("an exponent as id", "1e3", "{}"),
    ("a large id", "9007199254740993", "{}"),
    (
        "an id larger than any integer",
        "99999999999999999999",
        "{}",
    ),
    ("null as arguments", "7", "null"),
    ("half a surrogate pair", "7", r#"{"text":"cut \ud83d"}"#),
    (
        "the other half as the name of a member",
        "7",
        r#"{"\ude00":1}"#,
    ),
    (
        "halves beside a whole pair",
        "7",
        r#"["\ud83d\ude00\ud83d"]"#,
    ),
];

/// The same for requests that are refused: the members of the request beside its id, and the code.
const REFUSED: &[(&str, &str, i64)] = &[
    (
        "params in a list",
        r#""method":"tools/call","params":["t"]"#,
        -32600,
    ),
    (
        "half a surrogate pair as the name of a param",
        r#""method":"tools/call","params":{"name":"t","\ud83d":1,META}"#,
        -32700,
    ),
    (
        "another version of JSON-RPC",
        r#""jsonrpc":"1.0","method":"tools/call","params":{"name":"t",META}"#,
        -32600,
    ),
    (
        "a tool without a name",
        r#""method":"tools/call","params":{META}"#,
        -32602,
    ),
];

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"suite","version":"1"},"io.modelcontextprotocol/clientCapabilities":CAPABILITIES}"#;

const TASKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

fn meta(capabilities: &str) -> String {
    META.replace("CAPABILITIES", capabilities)
}

/// What a modern client hears.
async fn modern(client: &Client, id: &str, arguments: &str, capabilities: &str) -> String {
    let meta = meta(capabilities);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{arguments},{meta}}}}}"#
    );
    post(client, body).await
}

async fn post(client: &Client, body: String) -> String {
    let call = client.post(body).header("mcp-method", "tools/call");
    let call = call.header("mcp-protocol-version", "2026-07-28");
    call.header("mcp-name", "t").send().await.text
}

#[tokio::test]
async fn a_call_is_answered_under_its_own_id() {
    let mut wrong = Vec::new();
    for way in WAYS {
        let server = FieldServer::start(way, PLAIN).await;
        let proxy = server.behind(Config::always()).await;
        let client = Client::of(proxy.address());
        // The session is one of raincheck's where the server is known to be modern.
        modern(&client, "0", "{}", "{}").await;
        let session = Session::declaring(client.clone(), NEWEST, json!({})).await;
        for (what, id, arguments) in CALLS {
            // A task takes an object only, as its revision has it.
            let is_list = arguments.starts_with('[');
            let task = modern(&client, id, arguments, TASKS).await;
            let created: Value = serde_json::from_str(&task).unwrap();
            let ended = match created["result"]["taskId"].as_str() {
                Some(name) => client
                    .until_it(&Task::by_id(name), "over", |state| {
                        state["status"] != "working"
                    })
                    .await
                    .to_string(),
                None => task.clone(),
            };
            if !is_list && !ended.contains("done") {
                wrong.push(format!("{what}: {way:?}, task: {ended}"));
            }
            let plain = modern(&client, id, arguments, "{}").await;
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
            );
            let legacy = session.post_text(call).send().await.text;
            for (client, said) in [("task", &task), ("plain", &plain), ("session", &legacy)] {
                // The server writes the ids of what passes, as a reader of JSON in Rust leaves them.
                let same: Value = serde_json::from_str(id).unwrap();
                let forms = [(*id).to_owned(), same.to_string()];
                let has_id = forms
                    .iter()
                    .any(|id| said.contains(&format!("\"id\":{id}")));
                let is_done = client == "task" || is_list || said.contains("done");
                if !has_id || !is_done {
                    wrong.push(format!("{what}: {way:?}, {client}: {said}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_refusal_carries_the_id_of_its_request() {
    let mut wrong = Vec::new();
    for way in WAYS {
        let server = FieldServer::start(way, PLAIN).await;
        let proxy = server.behind(Config::always()).await;
        let client = Client::of(proxy.address());
        for (what, members, code) in REFUSED {
            let members = members.replace("META", &meta(TASKS));
            let version = if members.contains("jsonrpc") {
                ""
            } else {
                r#""jsonrpc":"2.0","#
            };
            let said = post(&client, format!(r#"{{{version}"id":7.5,{members}}}"#)).await;
            let is_refused = said.contains(&format!("\"code\":{code}"));
            if !is_refused || !said.contains("\"id\":7.5") {
                wrong.push(format!("{what}: {way:?}: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nothing answers there.
#[tokio::test]
async fn a_request_that_reaches_no_server_is_answered_under_its_id() {
    let gone = crate::ports::ReservedPort::new();
    let proxy = Config::always()
        .section("upstream", "era = \"modern\"")
        .start(&format!("http://{}/mcp", gone.address()))
        .await;
    let client = Client::of(proxy.address());
    let said = modern(&client, "\"a\"", "{}", "{}").await;
    assert!(said.contains("upstream_unreachable"), "{said}");
    assert!(said.contains("\"id\":\"a\""), "{said}");
}
