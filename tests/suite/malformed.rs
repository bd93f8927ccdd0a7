//! Bodies that two parsers could read in two ways, or none at all: refused and never sent on.

use serde_json::json;

use crate::support::client::Client;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    malformed_bodies_are_refused,
    requests_without_their_protocol_fields_are_refused,
    other_versions_are_refused_with_the_ones_there_are,
    a_body_over_the_limit_is_refused,
    a_notification_starts_nothing,
    unknown_methods_are_refused_as_such,
);

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

/// A call of `echo` with the headers that go with it and this body.
async fn post(client: &Client, body: impl Into<bytes::Bytes>) -> (u16, i64) {
    let request = client
        .post(body)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "echo");
    request.send().await.refusal()
}

/// The whole of a good call, with something else in place of its parts.
fn call(members: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0",{members}"params":{{{META},{params}}}}}"#)
}

const MEMBERS: &str = r#""id":1,"method":"tools/call","#;
const PARAMS: &str = r#""name":"echo","arguments":{"text":"x"}"#;

#[expect(clippy::too_many_lines, reason = "it is one table")]
async fn malformed_bodies_are_refused(era: Era) {
    let good = call(MEMBERS, PARAMS);
    let deep = format!(
        r#""name":"echo","arguments":{{"x":{}1{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let table: Vec<(&str, Vec<u8>, i64)> = [
        ("nothing", String::new(), -32700),
        ("half an object", good[..good.len() - 1].to_owned(), -32700),
        ("something after the end", format!("{good}x"), -32700),
        ("two messages", format!("{good}{good}"), -32700),
        ("a byte order mark", format!("\u{feff}{good}"), -32700),
        ("a comment", format!("/**/{good}"), -32700),
        (
            "a trailing comma",
            call(MEMBERS, r#""name":"echo","arguments":{"text":"x",}"#),
            -32700,
        ),
        ("too deep", call(MEMBERS, &deep), -32700),
        (
            "not a number",
            call(MEMBERS, r#""name":"echo","arguments":{"x":NaN}"#),
            -32700,
        ),
        ("a batch", format!("[{good}]"), -32600),
        ("an empty batch", "[]".into(), -32600),
        ("null", "null".into(), -32600),
        ("a number", "1".into(), -32600),
        ("a string", "\"x\"".into(), -32600),
        ("an empty object", "{}".into(), -32600),
        (
            "another version",
            good.replace("\"2.0\"", "\"1.0\""),
            -32600,
        ),
        (
            "a version that is a number",
            good.replace("\"2.0\"", "2.0"),
            -32600,
        ),
        (
            "no version",
            good.replace(r#""jsonrpc":"2.0","#, ""),
            -32600,
        ),
        (
            "a null id",
            call(r#""id":null,"method":"tools/call","#, PARAMS),
            -32600,
        ),
        (
            "a boolean id",
            call(r#""id":true,"method":"tools/call","#, PARAMS),
            -32600,
        ),
        (
            "an object as id",
            call(r#""id":{},"method":"tools/call","#, PARAMS),
            -32600,
        ),
        (
            "an array as id",
            call(r#""id":[1],"method":"tools/call","#, PARAMS),
            -32600,
        ),
        ("no method", call(r#""id":1,"#, PARAMS), -32600),
        (
            "a method that is a number",
            call(r#""id":1,"method":7,"#, PARAMS),
            -32600,
        ),
        (
            "a null method",
            call(r#""id":1,"method":null,"#, PARAMS),
            -32600,
        ),
        (
            "params that are an array",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#.into(),
            -32600,
        ),
        (
            "params that are a string",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"x"}"#.into(),
            -32600,
        ),
        (
            "a result",
            format!(r#"{{"jsonrpc":"2.0",{MEMBERS}"result":{{}}}}"#),
            -32600,
        ),
        (
            "two ids",
            call(r#""id":1,"id":2,"method":"tools/call","#, PARAMS),
            -32600,
        ),
        (
            "two methods",
            call(
                r#""id":1,"method":"tools/list","method":"tools/call","#,
                PARAMS,
            ),
            -32600,
        ),
        (
            "a method in capitals too",
            call(r#""id":1,"method":"tools/call","Method":"x","#, PARAMS),
            -32600,
        ),
        (
            "an escaped second method",
            call(r#""id":1,"method":"tools/call","m\u0065thod":"x","#, PARAMS),
            -32600,
        ),
        (
            "two names",
            call(MEMBERS, r#""name":"slow","name":"echo","arguments":{}"#),
            -32600,
        ),
        (
            "a name in capitals too",
            call(MEMBERS, r#""name":"echo","NAME":"slow","arguments":{}"#),
            -32600,
        ),
        (
            "two arguments",
            call(
                MEMBERS,
                r#""name":"echo","arguments":{},"arguments":{"a":1}"#,
            ),
            -32600,
        ),
        ("no name", call(MEMBERS, r#""arguments":{}"#), -32602),
        (
            "a name that is a number",
            call(MEMBERS, r#""name":7,"arguments":{}"#),
            -32602,
        ),
        (
            "arguments that are an array",
            call(MEMBERS, r#""name":"echo","arguments":[]"#),
            -32602,
        ),
        (
            "arguments that are a string",
            call(MEMBERS, r#""name":"echo","arguments":"x""#),
            -32602,
        ),
    ]
    .into_iter()
    .map(|(what, text, code)| (what, text.into_bytes(), code))
    .chain([("invalid UTF-8", latin1(&good), -32700)])
    .collect();
    for config in [Config::always(), Config::never()] {
        let rig = Rig::start(era, config).await;
        let client = rig.client();
        for (what, body, code) in &table {
            assert_eq!(post(&client, body.clone()).await, (400, *code), "{what}");
        }
        assert_eq!(rig.upstream.executions(), 0);
        assert!(rig.upstream.requests("tools/call").is_empty());
    }
}

/// The text with a byte in it that no UTF-8 has.
fn latin1(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let at = text.rfind("\"x\"").unwrap() + 1;
    bytes[at] = 0xff;
    bytes
}

async fn requests_without_their_protocol_fields_are_refused(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let body = |meta: &str| format!(r#"{{"jsonrpc":"2.0",{MEMBERS}"params":{{{meta}{PARAMS}}}}}"#);
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let table = [
        ("no _meta", String::new()),
        ("a null _meta", r#""_meta":null,"#.into()),
        ("an empty _meta", r#""_meta":{},"#.into()),
        ("no version", format!(r#""_meta":{{{capabilities}}},"#)),
        ("no capabilities", format!(r#""_meta":{{{version}}},"#)),
        (
            "capabilities that are none",
            format!(r#""_meta":{{{version},"io.modelcontextprotocol/clientCapabilities":[]}},"#),
        ),
        (
            "an unknown log level",
            format!(
                r#""_meta":{{{version},{capabilities},"io.modelcontextprotocol/logLevel":"loud"}},"#
            ),
        ),
    ];
    for (what, meta) in table {
        assert_eq!(post(&client, body(&meta)).await, (400, -32602), "{what}");
    }
    let twice = format!(r#""_meta":{{{version},{version},{capabilities}}},"#);
    assert_eq!(
        post(&client, body(&twice)).await,
        (400, -32600),
        "a version twice"
    );
    assert_eq!(rig.upstream.executions(), 0);
}

async fn other_versions_are_refused_with_the_ones_there_are(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    for version in ["2026-12-31", "2027-01-01"] {
        let call = rig
            .client()
            .calling("echo", json!({}))
            .header("mcp-protocol-version", version);
        let call = call.edit(|message| {
            message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(version);
        });
        let refused = call.send().await;
        assert_eq!(refused.refusal(), (400, -32022), "{version}");
        let data = &refused.json()["error"]["data"];
        assert_eq!(data["requested"], version);
        assert!(
            data["supported"]
                .as_array()
                .unwrap()
                .contains(&json!("2026-07-28")),
            "{data}"
        );
    }
    assert_eq!(rig.upstream.executions(), 0);
}

async fn a_body_over_the_limit_is_refused(era: Era) {
    let config = Config::always().section("limits", "body_bytes_max = \"64KiB\"");
    let rig = Rig::start(era, config).await;
    let call = rig
        .client()
        .calling("echo", json!({"text": "x".repeat(100_000)}));
    assert_eq!(call.send().await.status, 413);
    assert_eq!(rig.upstream.executions(), 0);
    rig.client()
        .call("echo", json!({"text": "x".repeat(10_000)}))
        .await
        .into_task();
}

async fn a_notification_starts_nothing(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let call = rig
        .client()
        .calling("echo", json!({"text": "x"}))
        .edit(|message| {
            message.as_object_mut().unwrap().remove("id");
        });
    let answer = call.send().await;
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    assert_eq!(rig.upstream.executions(), 0);
}

async fn unknown_methods_are_refused_as_such(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let refused = rig
        .client()
        .request("com.example/what", json!({}))
        .send()
        .await;
    assert_eq!(refused.refusal(), (404, -32601));
    // What a modern server knows is its own business; a legacy one's words would be others.
    let asked = rig.upstream.requests("com.example/what").len();
    assert_eq!(asked, usize::from(era == Era::Modern));
}
