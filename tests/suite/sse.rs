//! A server of the old transport (HTTP+SSE, 2024-11-05): tasks in front of it, real sessions for legacy
//! clients, and how it is found out.

use hyper::Method;
use serde_json::{Value, json};

use crate::sse_server::{Refusal, SseServer};
use crate::support::client::{Answer, Client, Request};
use crate::support::session::{self, SESSION, initialize};
use crate::support::shape::assert_state;
use crate::support::{Config, Proxy, TempDir};

const VERSION: &str = "2025-06-18";

async fn rig(config: Config) -> (SseServer, Proxy) {
    let server = SseServer::start().await;
    let proxy = config.start(&server.url()).await;
    (server, proxy)
}

/// Every call a task but those that look or help.
fn tasks() -> Config {
    Config::always().tool("{release,echo,line,changed}", "mode = \"never\"")
}

async fn release(client: &Client) {
    let released = client.call("release", json!({"nonces": ["a"]})).await;
    assert_eq!(released.into_text(), "released");
}

#[tokio::test]
async fn a_call_is_a_task_and_its_question_waits_there() {
    let (server, proxy) = rig(tasks()).await;
    let client = Client::of(proxy.address());
    let held = client.call("hold", json!({"nonce": "a"})).await.into_task();
    // Another call runs, and still it is known who asks.
    let task = client.call("ask", json!({})).await.into_task();
    let state = client.until(&task, "input_required").await;
    let asked = state["inputRequests"].as_object().unwrap();
    let key = asked.keys().next().unwrap();
    assert_eq!(asked[key]["params"]["message"], "Your name?");
    let answer = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
    client.update(&task, answer).await.assert_acknowledged();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
    assert_state(&client.get(&held).await, "working");
    release(&client).await;
    let state = client.until(&held, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "a");
    assert_eq!(server.seen("hold").len(), 1);
}

#[tokio::test]
async fn a_cancelled_task_is_cancelled_at_the_server() {
    let (server, proxy) = rig(tasks()).await;
    let client = Client::of(proxy.address());
    let task = client.call("hold", json!({"nonce": "a"})).await.into_task();
    server.until(|server| !server.seen("hold").is_empty()).await;
    client.cancel(&task).await.assert_acknowledged();
    client.until(&task, "cancelled").await;
    let told = |server: &SseServer| !server.seen("notifications/cancelled").is_empty();
    server.until(told).await;
}

#[tokio::test]
async fn a_stream_that_is_cut_fails_its_task_and_the_next_call_has_another() {
    let (server, proxy) = rig(tasks()).await;
    let client = Client::of(proxy.address());
    let task = client.call("cut", json!({})).await.into_task();
    let state = client.until(&task, "failed").await;
    assert_eq!(state["error"]["code"], -32603);
    let opened = server.opened();
    let said = client.call("line", json!({})).await.into_text();
    assert_eq!(said, (opened + 1).to_string());
    assert_eq!(server.seen("cut").len(), 1);
}

fn hello() -> Value {
    initialize(VERSION, json!({"elicitation": {}}))
}

/// A session whose client names its revision in no header, as the first clients of sessions did.
struct Session(session::Session);

impl Session {
    async fn open(client: Client) -> Self {
        let (session, answer) = session::Session::greeting(client, VERSION, &hello()).await;
        let opened = answer.json();
        assert_eq!(opened["id"], "one");
        assert_eq!(opened["result"]["serverInfo"]["name"], "sse-fixture");
        Self(session)
    }

    fn post(&self, message: &Value) -> Request {
        self.0.post(message).without("mcp-protocol-version")
    }

    fn calling(&self, id: &str, tool: &str, arguments: Value) -> Request {
        let calling = self.0.calling(id, tool, arguments);
        calling.without("mcp-protocol-version")
    }

    async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.calling("a", tool, arguments).send().await
    }

    async fn end(self) {
        let ending = self.0.ending().without("mcp-protocol-version");
        assert_eq!(ending.send().await.status, 200);
    }
}

/// Also by a legacy client that is the first of all.
#[tokio::test]
async fn a_legacy_client_has_a_session_and_the_server_sees_its_words() {
    for transport in ["auto", "sse"] {
        let config = Config::always().section("upstream", &format!("transport = {transport:?}"));
        let (server, proxy) = rig(config).await;
        let session = Session::open(Client::of(proxy.address())).await;
        assert_eq!(server.seen("initialize")[0]["id"], "one");
        let echoed = session.call("echo", json!({"text": "x"})).await.json();
        assert_eq!(echoed["id"], "a");
        assert_eq!(echoed["result"]["content"][0]["text"], "x");

        let mut stream = session.calling("b", "progress", json!({})).stream().await;
        assert_eq!(stream.next().await["params"]["progress"], 1);
        assert_eq!(stream.next().await["params"]["progress"], 3);
        assert_eq!(stream.next().await["result"]["content"][0]["text"], "done");

        let mut stream = session.calling("c", "ask", json!({})).stream().await;
        let question = stream.next().await;
        assert_eq!(question["method"], "elicitation/create");
        let content = json!({"action": "accept", "content": {"name": "Ada"}});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": content});
        assert_eq!(session.post(&answer).send().await.status, 202);
        assert_eq!(stream.next().await["result"]["content"][0]["text"], "Ada");

        session.end().await;
        server.until(|server| server.open() == 0).await;
    }
}

/// It begins anew, as after any restart of a server.
#[tokio::test]
async fn a_session_ends_with_its_stream() {
    let (server, proxy) = rig(Config::always()).await;
    let session = Session::open(Client::of(proxy.address())).await;
    let mut held = session
        .calling("a", "hold", json!({"nonce": "a"}))
        .stream()
        .await;
    server.until(|server| !server.seen("hold").is_empty()).await;
    server.cut();
    assert_eq!(held.next().await["error"]["code"], -32603);
    let after = session.call("echo", json!({"text": "x"})).await;
    assert_eq!(after.status, 404);
    let session = Session::open(session.0.client.clone()).await;
    // A message that the server does not know where to put ends it, too.
    server.refuse("tools/call", Refusal::Status(404, "Session not found"));
    let refused = session.call("echo", json!({"text": "x"})).await.json();
    assert_eq!(refused["error"]["code"], -32603);
    server.until(|server| server.open() == 0).await;
    assert_eq!(session.call("echo", json!({"text": "x"})).await.status, 404);
}

/// A session of another life of raincheck, the first that it hears of in this one.
#[tokio::test]
async fn a_session_of_before_is_not_found() {
    let (_server, proxy) = rig(Config::always()).await;
    let client = Client::of(proxy.address());
    let name = "9d0f8a4e-0000-4000-8000-000000000000";
    let old = Session(session::Session {
        client: client.clone(),
        name: name.into(),
        version: VERSION,
    });
    let request = client.http(Method::GET, "/mcp");
    let request = request.header("accept", "text/event-stream");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(old.post(&ping).send().await.status, 404);
    let news = request.header(SESSION, name).send().await;
    assert_eq!(news.status, 404);
    Session::open(client).await;
}

#[tokio::test]
async fn credentials_and_where_to_get_them_pass_to_the_same_machine() {
    let (server, proxy) = rig(tasks()).await;
    server.wants("Bearer mine");
    let stranger = Client::of(proxy.address());
    let refused = stranger.post(hello().to_string()).send().await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.headers["www-authenticate"], "Bearer realm=\"sse\"");
    let refused = stranger.calling("echo", json!({"text": "x"})).send().await;
    assert_eq!(refused.status, 401);
    let client = stranger.named("Bearer mine");
    let said = client.call("echo", json!({"text": "x"})).await.into_text();
    assert_eq!(said, "x");
    let session = Session::open(client.clone()).await;
    session.call("echo", json!({"text": "x"})).await;
    let came = server.credentials();
    assert!(came.iter().flatten().all(|it| it == "Bearer mine") && !came.contains(&None));
    let metadata = client.page("/.well-known/oauth-protected-resource").await;
    assert_eq!(metadata.status, 200);
}

#[tokio::test]
async fn it_is_ready_when_the_server_named_its_endpoint() {
    for transport in ["auto", "sse"] {
        let server = SseServer::start().await;
        let address = server.address.to_string();
        let url = server.url();
        drop(server);
        let config = Config::always().probed("");
        let config = config.section("upstream", &format!("transport = {transport:?}"));
        let proxy = config.start(&url).await;
        let probes = Client::of(proxy.probes().await);
        assert_eq!(probes.page("/readyz").await.status, 503);
        let _server = SseServer::at(&address).await;
        probes.until_page("/readyz", 200).await;
    }
}

#[tokio::test]
async fn check_says_what_it_found() {
    let server = SseServer::start().await;
    let directory = TempDir::new();
    let mut check = tokio::process::Command::new(env!("CARGO_BIN_EXE_raincheck"));
    check.args(["check", "--store", "memory:", "--upstream", &server.url()]);
    check.current_dir(directory.path()).env_clear();
    let output = check.output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for line in [
        "over HTTP+SSE (2024-11-05)",
        "sse-fixture 1",
        "lost with its stream",
        "echo ",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}
