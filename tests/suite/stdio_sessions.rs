//! Legacy clients of a server that raincheck runs itself: real sessions, a process each.

use std::ops::Deref;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::session::{self, SESSION, initialize};
use crate::support::{Config, PATIENCE, Proxy, within};

const VERSION: &str = "2025-06-18";

async fn proxy() -> Proxy {
    Config::always().run("dual").await
}

fn hello() -> Value {
    initialize(VERSION, json!({"elicitation": {}}))
}

/// A session with a program, whose calls have the id 7 unless they say another.
#[derive(Debug)]
struct Session(session::Session);

impl Deref for Session {
    type Target = session::Session;

    fn deref(&self) -> &session::Session {
        &self.0
    }
}

impl Session {
    async fn open(proxy: &Proxy) -> Self {
        Self::of(Client::of(proxy.address())).await
    }

    async fn of(client: Client) -> Self {
        let (session, answer) = session::Session::greeting(client, VERSION, &hello()).await;
        assert_eq!(answer.headers["content-type"], "application/json");
        let opened = answer.json();
        assert_eq!(opened["id"], "one");
        assert_eq!(opened["result"]["serverInfo"]["name"], "stdio-fixture");
        assert_eq!(opened["result"]["protocolVersion"], VERSION);
        Self(session)
    }

    async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.calling(7, tool, arguments).send().await
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await.json();
        let text = &answer["result"]["content"][0]["text"];
        text.as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }
}

#[tokio::test]
async fn a_session_has_a_process_of_its_own() {
    let proxy = proxy().await;
    let (one, other) = (Session::open(&proxy).await, Session::open(&proxy).await);
    assert_ne!(one.name, other.name);
    assert_ne!(
        one.text("pid", json!({})).await,
        other.text("pid", json!({})).await
    );
    let answer = one.call("echo", json!({"text": "x"})).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.json()["id"], 7);
    // What the client said arrived as it was.
    let seen: Value = serde_json::from_str(&one.text("seen", json!({})).await).unwrap();
    assert_eq!(seen[0]["id"], "one");
    assert_eq!(seen[0]["params"]["clientInfo"]["name"], "suite");
    assert_eq!(seen[1]["method"], "notifications/initialized");
}

#[tokio::test]
async fn an_id_may_be_any_and_is_echoed() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    for id in [
        json!(0),
        json!(-5),
        json!(1.5),
        json!("7"),
        json!("a\u{e9}\"b"),
    ] {
        let answer = session.calling(id.clone(), "echo", json!({"text": "x"}));
        assert_eq!(answer.send().await.json()["id"], id);
    }
    for id in [json!(null), json!({}), json!(true)] {
        let answer = session.calling(id, "echo", json!({})).send().await;
        assert_eq!(answer.refusal(), (400, -32600));
    }
    let batch = session.post(&json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]));
    assert_eq!(batch.send().await.refusal(), (400, -32600));
}

/// What a client makes of it is the client's matter, where it is text at all.
#[tokio::test]
async fn an_answer_that_nobody_could_read_is_an_answer() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    for (how, said) in [("half", r#""x":"\ud83d""#), ("deep", "[[[]]]")] {
        let answer = session.call("unreadable", json!({"how": how})).await;
        assert!(answer.text.contains(said), "{}", answer.text);
    }
    let answer = session.call("unreadable", json!({"how": "bytes"})).await;
    let data = answer.json()["error"]["data"].take();
    assert_eq!(data["io.raincheck/reason"], "upstream_invalid");
    assert_eq!(data["io.raincheck/effect"], "unknown");
}

#[tokio::test]
async fn the_same_id_twice_at_once_is_answered_twice() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    let mut first = session
        .calling(json!(7), "progress", json!({"nonce": "a"}))
        .stream()
        .await;
    first.next_of("notifications/progress").await;
    let second = session.calling(json!(7), "echo", json!({"text": "x"}));
    let second = second.send().await.json();
    assert_eq!(second["id"], 7);
    assert_eq!(second["result"]["content"][0]["text"], "x");
    let release = session.calling(json!(8), "release", json!({"nonces": ["a"]}));
    release.send().await;
    loop {
        let message = first.next().await;
        if message["id"] == 7 {
            break;
        }
    }
}

#[tokio::test]
async fn progress_and_questions_come_on_the_stream_of_the_call() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    let mut stream = session
        .calling(json!(1), "progress", json!({}))
        .stream()
        .await;
    assert_eq!(stream.next().await["params"]["progress"], 1);
    // What names no call of the client's is for its other stream.
    assert_eq!(stream.next().await["params"]["progress"], 3);
    assert_eq!(stream.next().await["result"]["content"][0]["text"], "done");
    assert!(stream.next_or_end().await.is_none());

    let mut stream = session.calling(json!(2), "ask", json!({})).stream().await;
    let question = stream.next().await;
    assert_eq!(question["method"], "elicitation/create");
    let content = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": content});
    assert_eq!(session.post(&answer).send().await.status, 202);
    assert_eq!(stream.next().await["result"]["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn what_belongs_to_no_call_comes_on_the_other_stream() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    let mut news = session.http(Method::GET).stream().await;
    assert_eq!(news.status, 200);
    // A client whose network was cut comes back before anybody sees that.
    let mut old = std::mem::replace(&mut news, session.http(Method::GET).stream().await);
    assert_eq!(news.status, 200);
    let end = within(PATIENCE, "the old stream's end", old.next_or_end()).await;
    assert_eq!(end, None);
    session.call("changed", json!({})).await;
    news.next_of("notifications/tools/list_changed").await;

    // Two calls run: neither can be meant, and the client has to know.
    let mut first = session
        .calling(json!(1), "progress", json!({"nonce": "a"}))
        .stream()
        .await;
    first.next_of("notifications/progress").await;
    let asking = session.calling(json!(2), "ask", json!({}));
    let asking = tokio::spawn(asking.send());
    let question = news.next_of("elicitation/create").await;
    let content = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": content});
    assert_eq!(session.post(&answer).send().await.status, 202);
    let answer = asking.await.unwrap().json();
    assert_eq!(answer["result"]["content"][0]["text"], "Ada");

    // A stream that was closed may be opened again.
    drop(news);
    assert_eq!(session.http(Method::GET).stream().await.status, 200);
}

#[tokio::test]
async fn a_cancel_and_a_hang_up_are_different_things() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    let mut stream = session
        .calling(json!(1), "progress", json!({"nonce": "a"}))
        .stream()
        .await;
    stream.next_of("notifications/progress").await;
    drop(stream);
    let seen = session.text("seen", json!({})).await;
    assert!(!seen.contains("cancelled"), "{seen}");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(session.post(&cancel).send().await.status, 202);
    let seen: Vec<Value> = serde_json::from_str(&session.text("seen", json!({})).await).unwrap();
    assert!(seen.contains(&cancel));

    // What is said about a cancelled call ends, and its id is free.
    let mut stream = session
        .calling(json!(2), "progress", json!({"nonce": "b"}))
        .stream()
        .await;
    stream.next_of("notifications/progress").await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    assert_eq!(session.post(&cancel).send().await.status, 202);
    while let Some(message) = stream.next_or_end().await {
        assert_eq!(message["method"], "notifications/progress");
    }
    let again = session.calling(json!(2), "echo", json!({"text": "x"}));
    assert_eq!(again.send().await.json()["id"], 2);
}

#[tokio::test]
async fn a_session_belongs_to_its_caller_and_ends() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    let nobody = session
        .client
        .post(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string());
    assert_eq!(nobody.send().await.status, 400);
    let other = Session(session.at(session.client.clone().named("Bearer b")));
    let unknown = Session(session.named("no-such-session"));
    for stranger in [&other, &unknown] {
        assert_eq!(stranger.call("pid", json!({})).await.status, 404);
        assert_eq!(stranger.http(Method::GET).send().await.status, 404);
        assert_eq!(stranger.http(Method::DELETE).send().await.status, 404);
    }
    session.text("pid", json!({})).await;
    assert_eq!(session.http(Method::DELETE).send().await.status, 200);
    assert_eq!(session.call("pid", json!({})).await.status, 404);
    assert_eq!(session.http(Method::PUT).send().await.status, 405);
}

#[tokio::test]
async fn the_end_of_the_process_is_the_end_of_the_session() {
    let proxy = proxy().await;
    let session = Session::open(&proxy).await;
    let mut news = session.http(Method::GET).stream().await;
    let answer = session.call("exit", json!({})).await;
    assert_eq!(answer.status, 200);
    let error = answer.json()["error"].take();
    assert_eq!(error["code"], -32603);
    assert_eq!(error["data"]["io.raincheck/reason"], "upstream_reset");
    assert_eq!(error["data"]["io.raincheck/effect"], "unknown");
    assert!(news.next_or_end().await.is_none());
    assert_eq!(session.call("pid", json!({})).await.status, 404);
    Session::open(&proxy).await;
}

#[tokio::test]
async fn a_handshake_that_is_lost_leaves_no_session() {
    let dies = Config::always().run("dies").await;
    let answer = Client::of(dies.address())
        .post(hello().to_string())
        .send()
        .await;
    assert_eq!(
        answer.json()["error"]["data"]["io.raincheck/reason"],
        "upstream_unreachable",
        "the program ends before it reads"
    );
    assert!(!answer.headers.contains_key(SESSION));
}

#[tokio::test]
async fn sessions_are_bounded() {
    let proxy = Config::always()
        .run_with("legacy", "children_max = 1")
        .await;
    let session = Session::open(&proxy).await;
    let closing = session.http(Method::DELETE);
    // Waits for the first one's process to end.
    let second = tokio::spawn(Session::of(session.client.clone()));
    assert_eq!(closing.send().await.status, 200);
    let second = second.await.unwrap();
    second.text("pid", json!({})).await;
}

/// Sessions that were opened and left keep nobody waiting; one that its client has used goes on.
#[tokio::test]
async fn a_session_that_nobody_uses_makes_room() {
    let proxy = Config::always()
        .run_with("legacy", "children_max = 2")
        .await;
    let used = Session::open(&proxy).await;
    let pid = used.text("pid", json!({})).await;
    let left = Session::open(&proxy).await;
    let third = within(PATIENCE, "there is room", Session::open(&proxy)).await;
    third.text("pid", json!({})).await;
    assert_eq!(left.call("pid", json!({})).await.status, 404);
    assert_eq!(used.text("pid", json!({})).await, pid);
}

#[tokio::test]
async fn a_drain_waits_for_its_calls() {
    let token = "token = \"correct-horse-battery-staple\"\ngrace = \"20s\"";
    let config = Config::always().http2().probed("").section("drain", token);
    let mut proxy = config.run("dual").await;
    let probes = Client::of(proxy.probes().await);
    let (client, _arrived) = Client::of(proxy.address()).over_http2().await;
    let session = Session::of(client).await;
    let call = session.calling(json!(7), "progress", json!({"nonce": "a"}));
    let mut call = call.stream().await;
    call.next_of("notifications/progress").await;
    let drain = async move { probes.page("/drain/correct-horse-battery-staple").await };
    let mut draining = tokio::spawn(drain);
    let early = tokio::time::timeout(Duration::from_millis(500), &mut draining).await;
    assert!(early.is_err(), "drained although a call runs: {early:?}");
    let release = session.calling(json!(8), "release", json!({"nonces": ["a"]}));
    let released = release.send().await;
    assert_eq!(released.status, 200);
    let answer = async {
        loop {
            let message = call.next().await;
            if message["id"] == 7 {
                return message;
            }
        }
    };
    let answer = within(PATIENCE, "the call is answered", answer).await;
    assert_eq!(answer["result"]["content"][0]["text"], "a");
    let drained = within(PATIENCE, "the drain is answered", draining).await;
    assert_eq!(drained.unwrap().status, 200);
    assert!(proxy.stop().await.success());
}
