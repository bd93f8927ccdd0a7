//! What is none of raincheck's business passes as it is.

use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::session::{NEWEST, Session, initialize};
use crate::support::upstream::CHALLENGE;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    every_other_path_is_closed,
    strange_hosts_and_origins_are_refused,
    the_description_of_the_resource_passes,
    a_challenge_passes_untouched,
    headers_of_one_connection_stay_there,
);

fn hello() -> Value {
    initialize(NEWEST, json!({"elicitation": {}}))
}

async fn open(client: Client) -> (Session, Answer) {
    Session::greeting(client, NEWEST, &hello()).await
}

async fn call(session: &Session, tool: &str) -> Answer {
    let params = json!({"name": tool, "arguments": {"text": "x", "ms": 200}});
    session.request(7, "tools/call", params).send().await
}

#[tokio::test]
async fn a_legacy_session_passes_byte_for_byte() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let direct = Client::of(rig.upstream.address());
    let (through, opened) = open(rig.client()).await;
    let (direct, opened_directly) = open(direct).await;
    // But for what raincheck says of tasks.
    let tasks = r#""tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}"#;
    let theirs = r#""tasks":{"cancel":{},"list":{}}"#;
    assert_eq!(opened.body.replace(tasks, theirs), opened_directly.body);
    for tool in ["echo", "slow", "fail", "error", "no such tool"] {
        let (one, other) = (call(&through, tool).await, call(&direct, tool).await);
        assert_eq!(
            (one.status, &one.body),
            (other.status, &other.body),
            "{tool}"
        );
        assert_eq!(
            one.headers["content-type"], other.headers["content-type"],
            "{tool}"
        );
    }
    let sent = rig.upstream.requests("tools/call");
    assert_eq!(sent[0].text(), sent[1].text(), "the request, too");
}

#[tokio::test]
async fn a_legacy_session_has_its_streams_and_its_end() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let (session, _) = open(rig.client()).await;
    let mut stream = session
        .http(Method::GET)
        .header("last-event-id", "e-1")
        .stream()
        .await;
    assert_eq!(stream.status, 200);
    rig.upstream.until_listened().await;
    rig.upstream.tell("notifications/tools/list_changed");
    let told = stream.next().await;
    assert_eq!(
        told,
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    );
    let get = rig
        .upstream
        .received()
        .into_iter()
        .find(|one| one.verb == Method::GET)
        .unwrap();
    assert_eq!(get.header("last-event-id"), Some("e-1"));
    assert_eq!(session.http(Method::DELETE).send().await.status, 200);
    assert_eq!(call(&session, "echo").await.status, 404);
    assert_eq!(session.http(Method::GET).send().await.status, 404);
}

#[tokio::test]
async fn a_legacy_client_answers_its_server_itself() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let (session, _) = open(rig.client()).await;
    let params = json!({"name": "ask", "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut stream = session.post(&call).stream().await;
    let question = stream.next().await;
    assert_eq!(question["method"], "elicitation/create");
    let result = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    assert_eq!(session.post(&answer).send().await.status, 202);
    assert_eq!(stream.next().await["result"]["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn a_legacy_client_that_leaves_cancels_nothing() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let (session, _) = open(rig.client()).await;
    let params = json!({"name": "held", "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let stream = session.post(&call).stream().await;
    rig.upstream.until_started("held").await;
    drop(stream);
    rig.upstream.release("held");
    rig.upstream
        .until("held", "finished", |tally| tally.finished == 1)
        .await;
}

#[tokio::test]
async fn a_legacy_batch_passes_unread() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let (session, _) = open(rig.client()).await;
    let batch = r#"[ {"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"id":2}]"#;
    session.post_text(batch).send().await;
    assert_eq!(
        rig.upstream.received_of_clients().last().unwrap().text(),
        batch
    );
}

async fn every_other_path_is_closed(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    for path in [
        "/",
        "/mcp//",
        "//mcp",
        "/mcp/../x",
        "/MCP",
        "/%6dcp",
        "/metrics",
        "/.well-known/x",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource/other",
    ] {
        for verb in [Method::GET, Method::POST] {
            assert_eq!(client.http(verb, path).send().await.status, 404, "{path}");
        }
    }
    assert!(
        rig.upstream.received().iter().all(|one| one.path == "/mcp"),
        "nothing got through"
    );
}

async fn strange_hosts_and_origins_are_refused(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let call = || client.calling("echo", json!({"text": ""}));
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
    ] {
        assert_eq!(
            call().header("host", host).send().await.status,
            403,
            "{host}"
        );
    }
    for origin in [
        "http://evil.example",
        "null",
        "https://localhost.evil.example",
    ] {
        assert_eq!(
            call().header("origin", origin).send().await.status,
            403,
            "{origin}"
        );
    }
    assert_eq!(rig.upstream.executions(), 0);
    call().header("host", "localhost").send().await.into_task();
    call()
        .header("origin", "http://localhost:3000")
        .send()
        .await
        .into_task();
}

async fn the_description_of_the_resource_passes(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let answer = rig.client().http(Method::GET, path).send().await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.body, r#"{"resource":"http://127.0.0.1/mcp"}"#);
        assert_eq!(
            rig.upstream.received_of_clients().last().unwrap().path,
            path
        );
    }
}

async fn a_challenge_passes_untouched(era: Era) {
    for config in [Config::never(), Config::auto("10s")] {
        let rig = Rig::start(era, config).await;
        rig.upstream.challenge();
        let client = rig.client();
        let requests = [
            client.post(hello().to_string()),
            client.request("tools/list", json!({})),
            client.request("server/discover", json!({})),
            client.calling("echo", json!({"text": ""})),
        ];
        for request in requests {
            let what = format!("{request:?}");
            let answer = request.send().await;
            assert_eq!(answer.status, 401, "{what} {}", answer.body);
            assert_eq!(answer.headers["www-authenticate"], CHALLENGE, "{what}");
        }
        let known = client
            .named("Bearer alice")
            .call("echo", json!({"text": "x"}))
            .await;
        assert_eq!(known.into_text(), "x");
    }
}

async fn headers_of_one_connection_stay_there(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let client = rig.client();
    let request = match era {
        Era::Legacy => client.post(hello().to_string()),
        Era::Modern => client.request("tools/list", json!({})),
    };
    let request = request
        .header("connection", "x-private, keep-alive")
        .header("x-private", "secret")
        .header("keep-alive", "timeout=5")
        .header("te", "trailers")
        .header("proxy-authorization", "Basic x")
        .header("x-kept", "1")
        .header("host", "localhost");
    assert_eq!(request.send().await.status, 200);
    let method = if era == Era::Legacy {
        "initialize"
    } else {
        "tools/list"
    };
    let received = rig.upstream.requests(method);
    let received = received
        .iter()
        .find(|one| one.header("x-kept").is_some())
        .unwrap();
    for name in [
        "x-private",
        "keep-alive",
        "te",
        "proxy-authorization",
        "connection",
    ] {
        assert_eq!(received.header(name), None, "{name}");
    }
    assert_eq!(
        received.header("host"),
        Some(rig.upstream.address().to_string().as_str())
    );
}
