//! Legacy clients in front of a server that is modern and nothing else.

use std::ops::Deref;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, Request};
use crate::support::session::{self, NEWEST, SESSION, accept, initialize};
use crate::support::stream::Stream;
use crate::support::{Config, Era, PATIENCE, Rig, within};

const META: &str = "io.modelcontextprotocol/";

/// A session of a client that knows the tasks of its revision, and whose calls have members of its own.
#[derive(Debug, Clone)]
pub(crate) struct Session(session::Session);

impl Deref for Session {
    type Target = session::Session;

    fn deref(&self) -> &session::Session {
        &self.0
    }
}

impl Session {
    pub(crate) async fn open(client: Client) -> Self {
        let capabilities = json!({"elicitation": {}, "tasks": {}});
        Self::declaring(client, NEWEST, capabilities).await
    }

    pub(crate) async fn declaring(
        client: Client,
        version: &'static str,
        capabilities: Value,
    ) -> Self {
        Self(session::Session::declaring(client, version, capabilities).await)
    }

    /// The same session at another replica.
    pub(crate) fn at(&self, client: Client) -> Self {
        Self(self.0.at(client))
    }

    pub(crate) fn calling(&self, id: u64, tool: &str, arguments: Value) -> Request {
        let params = json!({"name": tool, "arguments": arguments,
            "_meta": {"progressToken": "mine", "com.example/kept": 1.5}});
        self.request(id, "tools/call", params)
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        answered(&self.request(1, method, params).send().await)
    }

    pub(crate) async fn reply(&self, question: &Value, result: Value) -> u16 {
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        self.post(&answer).send().await.status
    }
}

/// What a legacy client can read as the answer: on a session no error has a status of its own.
pub(crate) fn answered(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.text).unwrap()
}

/// The next question, whose id is ours.
pub(crate) async fn question(stream: &mut Stream) -> Value {
    let asked = stream.next().await;
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let id = asked["id"].as_str().unwrap();
    assert!(id.starts_with("raincheck/"), "{id}");
    asked
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

async fn rig() -> Rig {
    Rig::start(Era::Modern, Config::always()).await
}

#[tokio::test]
async fn initialize_is_answered_from_what_the_server_says_of_itself() {
    let rig = rig().await;
    for (offered, agreed) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2024-11-05"),
        // What rmcp offers by default.
        ("2026-07-28", "2025-11-25"),
    ] {
        let message = initialize(offered, json!({})).to_string();
        let answer = rig.client().post(message).send().await;
        let name = answer.headers[SESSION].to_str().unwrap();
        assert!(name.starts_with("raincheck-"), "{name}");
        let mut capabilities = json!({"tools": {"listChanged": true}});
        if agreed == "2025-11-25" {
            capabilities["tasks"] = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        assert_eq!(
            answered(&answer),
            json!({"jsonrpc": "2.0", "id": "one", "result": {
                "protocolVersion": agreed, "capabilities": capabilities,
                "serverInfo": {"name": "scripted", "version": "1"}, "instructions": "scripted",
            }})
        );
    }
    let tried = rig.upstream.requests("initialize").len();
    assert!(
        tried <= 2,
        "the server was asked for sessions {tried} times"
    );
    let broken = initialize("x", json!({})).to_string();
    let broken = broken.replace(r#""protocolVersion":"x""#, r#""protocolVersion":7"#);
    let refused = answered(&rig.client().post(broken).send().await);
    assert_eq!(refused["error"]["code"], -32602);
}

#[tokio::test]
async fn a_call_is_made_in_modern_words_and_answered_in_legacy_ones() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let answer = session
        .calling(7, "echo", json!({"text": "x"}))
        .send()
        .await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let echoed = answered(&answer);
    assert_eq!((&echoed["id"], text(&echoed)), (&json!(7), "x"));
    assert!(answer.text.contains("12345678901234567890123 "), "unread");
    assert!(!answer.text.contains("resultType"), "{}", answer.text);
    let sent = rig.upstream.requests("tools/call")[0].json();
    let meta = &sent["params"]["_meta"];
    assert_eq!(meta[format!("{META}protocolVersion")], "2026-07-28");
    assert_eq!(meta[format!("{META}clientInfo")]["name"], "suite");
    assert_eq!(meta[format!("{META}logLevel")], "info");
    assert_eq!(
        meta[format!("{META}clientCapabilities")],
        json!({"elicitation": {}})
    );
    assert_eq!(meta["com.example/kept"], 1.5);

    // The server checks the header that mirrors the argument.
    let mirrored = session.calling(8, "with_header", json!({"region": "eu", "text": "y"}));
    assert_eq!(text(&answered(&mirrored.send().await)), "y");
    let unknown = answered(&session.calling(9, "no such tool", json!({})).send().await);
    assert_eq!(unknown["error"]["code"], -32602);
    let listed = session.ask("tools/list", json!({})).await;
    let members: Vec<&String> = listed["result"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["tools"]);
    let gone = session.ask("resources/read", json!({"uri": "a:b"})).await;
    assert_eq!(gone["error"]["code"], -32601, "{gone}");
}

/// Such as the raincheck of a laptop in front of one that runs beside the server.
#[tokio::test]
async fn a_session_of_the_raincheck_behind_passes_through_the_one_before() {
    let behind = rig().await;
    let url = format!("http://{}/mcp", behind.proxy.address());
    let before = Config::always().start(&url).await;
    let session = Session::open(Client::of(before.address())).await;
    assert!(session.name.starts_with("raincheck-"), "{}", session.name);
    let echoed = session.calling(1, "echo", json!({"text": "x"}));
    assert_eq!(text(&answered(&echoed.send().await)), "x");
    assert_eq!(session.end().await, 200);
    assert_eq!(
        session.calling(2, "echo", json!({})).send().await.status,
        404
    );
}

#[tokio::test]
async fn what_a_session_knows_of_itself_is_answered_here() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    assert_eq!(session.ask("ping", json!({})).await["result"], json!({}));
    let level = json!({"level": "error"});
    let set = session.ask("logging/setLevel", level).await;
    assert_eq!(set["result"], json!({}));
    let wrong = session
        .ask("logging/setLevel", json!({"level": "loud"}))
        .await;
    assert_eq!(wrong["error"]["code"], -32602);
    session.calling(2, "echo", json!({})).send().await;
    let sent = rig.upstream.requests("tools/call")[0].json();
    assert_eq!(sent["params"]["_meta"][format!("{META}logLevel")], "error");
    for method in ["server/discover", "subscriptions/listen", "x"] {
        let unknown = session.ask(method, json!({"taskId": "x"})).await;
        assert_eq!(unknown["error"]["code"], -32601, "{method}");
    }
}

#[tokio::test]
async fn questions_are_put_to_the_client_and_its_answers_passed_on() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask_two", json!({})).stream().await;
    let (one, two) = (question(&mut stream).await, question(&mut stream).await);
    assert_ne!(one["id"], two["id"]);
    assert_eq!(session.reply(&two, accept("Bob")).await, 202);
    assert_eq!(session.reply(&one, accept("Ann")).await, 202);
    let answer = stream.next().await;
    let first_is_first = one["params"]["message"] == "Your first?";
    let expected = if first_is_first {
        "Ann and Bob"
    } else {
        "Bob and Ann"
    };
    assert_eq!(text(&answer), expected);
    assert!(stream.next_or_end().await.is_none());

    let mut stream = session.calling(2, "ask_twice", json!({})).stream().await;
    for name in ["Ann", "Bob"] {
        let asked = question(&mut stream).await;
        assert_eq!(session.reply(&asked, accept(name)).await, 202);
    }
    assert_eq!(text(&stream.next().await), "Ann and Bob");
}

#[tokio::test]
async fn a_client_that_cannot_or_will_not_answer_ends_no_call() {
    let rig = rig().await;
    let mute = Session::declaring(rig.client(), "2025-03-26", json!({})).await;
    let answer = answered(&mute.calling(1, "ask", json!({})).send().await);
    assert_eq!(text(&answer), "cancel");

    let session = Session::declaring(rig.client(), "2025-06-18", json!({"elicitation": {}})).await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let asked = question(&mut stream).await;
    assert!(
        asked["params"].get("mode").is_none(),
        "unknown then: {asked}"
    );
    let error = json!({"code": -1, "message": "no"});
    let refusal = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
    assert_eq!(session.post(&refusal).send().await.status, 202);
    assert_eq!(text(&stream.next().await), "cancel");
    // An answer to a question that was not asked.
    let stray = json!({"id": "raincheck/x"});
    assert_eq!(session.reply(&stray, accept("Ann")).await, 202);
}

#[tokio::test]
async fn only_the_session_that_was_asked_can_answer() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let other = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let asked = question(&mut stream).await;
    assert_eq!(other.reply(&asked, accept("Eve")).await, 202);
    assert_eq!(session.reply(&asked, accept("Ann")).await, 202);
    assert_eq!(text(&stream.next().await), "Ann");
}

#[tokio::test]
async fn progress_is_told_and_a_cancel_reaches_the_server() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(5, "steps", json!({"n": 1})).stream().await;
    let told = stream.next().await;
    assert_eq!(told["params"]["progressToken"], "mine");
    let beside = session.calling(5, "echo", json!({"text": "x"}));
    assert_eq!(text(&answered(&beside.send().await)), "x");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 5}});
    assert_eq!(session.post(&cancel).send().await.status, 202);
    let wanted = rig
        .upstream
        .until("steps", "cancelled", |t| t.cancelled == 1);
    wanted.await;
    let end = within(PATIENCE, "the stream's end", stream.next_or_end()).await;
    assert_eq!(end, None, "what was cancelled has no answer");
}

#[tokio::test]
async fn a_call_outlives_its_connection() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(5, "steps", json!({"n": 1})).stream().await;
    stream.next().await;
    drop(stream);
    // What comes after it was seen, and the server was told nothing.
    assert_eq!(session.ask("ping", json!({})).await["result"], json!({}));
    rig.upstream.release("steps");
    let wanted = rig.upstream.until("steps", "ended", |t| t.running() == 0);
    wanted.await;
    let tally = rig.upstream.tally("steps");
    assert_eq!((tally.finished, tally.cancelled), (1, 0));
}

#[tokio::test]
async fn changes_come_on_the_sessions_stream() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.http(Method::GET).stream().await;
    assert_eq!(stream.status, 200);
    rig.upstream.until_listened().await;
    rig.upstream.tell("notifications/tools/list_changed");
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert_eq!(stream.next().await, changed);

    let uri = json!({"uri": "test://one"});
    let subscribed = session.ask("resources/subscribe", uri.clone()).await;
    assert_eq!(subscribed["result"], json!({}));
    rig.upstream.until_received("subscriptions/listen", 2).await;
    rig.upstream.until_listening(2).await;
    rig.upstream.tell("notifications/resources/updated");
    let updated = stream.next_of("notifications/resources/updated").await;
    assert_eq!(updated["params"], uri);
    let ended = session.ask("resources/unsubscribe", uri).await;
    assert_eq!(ended["result"], json!({}));
    rig.upstream.until_received("subscriptions/listen", 3).await;
    let last = rig.upstream.requests("subscriptions/listen").pop().unwrap();
    let filter = &last.json()["params"]["notifications"];
    assert_eq!(*filter, json!({"toolsListChanged": true}));
}

#[tokio::test]
async fn a_client_that_comes_back_listens_although_its_old_stream_seems_open() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let mut old = session.http(Method::GET).stream().await;
    rig.upstream.until_listening(1).await;
    let mut new = session.http(Method::GET).stream().await;
    assert_eq!(new.status, 200);
    let end = within(PATIENCE, "the old stream's end", old.next_or_end()).await;
    assert_eq!(end, None);
    // Changes of that time may not have been told to any client.
    let changed = new.next_of("notifications/tools/list_changed").await;
    assert!(changed.get("params").is_none(), "{changed}");
    // From here on there is one stream, which says each thing once.
    let params = json!({"name": "ask", "arguments": {}, "task": {}});
    session.ask("tools/call", params).await;
    let asked = new.next_of("elicitation/create").await;
    let mut newest = session.http(Method::GET).stream().await;
    // It may not have arrived.
    let again = newest.next_of("elicitation/create").await;
    assert_eq!(asked, again);
    assert_eq!(session.reply(&asked, accept("Ada")).await, 202);
    let ended = newest.next_of("notifications/tasks/status").await;
    assert_ne!(ended["params"]["status"], "input_required", "{ended}");
}

#[tokio::test]
async fn an_ended_session_is_unknown_and_its_calls_are_cancelled() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let mut news = session.http(Method::GET).stream().await;
    let mut stream = session.calling(5, "steps", json!({"n": 1})).stream().await;
    stream.next().await;
    assert_eq!(session.http(Method::DELETE).send().await.status, 200);
    let wanted = rig
        .upstream
        .until("steps", "cancelled", |t| t.cancelled == 1);
    wanted.await;
    let end = within(PATIENCE, "the stream's end", news.next_or_end()).await;
    assert_eq!(end, None);
    let late = session.request(1, "ping", json!({})).send().await;
    assert_eq!(late.status, 404);
    for verb in [Method::GET, Method::DELETE] {
        assert_eq!(session.http(verb).send().await.status, 404);
    }
}

#[tokio::test]
async fn a_session_is_its_callers_alone() {
    let rig = rig().await;
    let session = Session::open(rig.client().named("Bearer alice")).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(session.post(&ping).send().await.status, 200);
    for other in [rig.client(), rig.client().named("Bearer bob")] {
        let theirs = session.at(other);
        assert_eq!(theirs.post(&ping).send().await.status, 404);
        assert_eq!(theirs.http(Method::DELETE).send().await.status, 404);
    }
    let unnamed = session.post(&ping).without(SESSION).send().await;
    assert_eq!(unnamed.status, 400);
    let made_up = session.post(&ping).header(SESSION, "raincheck-1");
    assert_eq!(made_up.send().await.status, 404);
    let older = session
        .post(&ping)
        .header("mcp-protocol-version", "2024-10-07");
    assert_eq!(older.send().await.status, 400);
    let batch = session.post(&json!([ping]));
    assert_eq!(batch.send().await.status, 400);
}

#[tokio::test]
async fn a_server_of_both_eras_keeps_its_own_sessions() {
    let rig = rig().await;
    rig.upstream.take_sessions();
    // Its era is known before the first legacy client comes.
    rig.client().call("echo", json!({})).await;
    let session = Session::open(rig.client()).await;
    assert!(!session.name.starts_with("raincheck-"), "{}", session.name);
    let echoed = answered(
        &session
            .calling(3, "echo", json!({"text": "x"}))
            .send()
            .await,
    );
    assert_eq!(text(&echoed), "x");
}

#[tokio::test]
async fn a_program_that_is_modern_only_is_no_other_server() {
    let proxy = Config::always().run("modern").await;
    let session = Session::open(Client::of(proxy.address())).await;
    assert!(session.name.starts_with("raincheck-"), "{}", session.name);
    let echoed = session
        .calling(1, "echo", json!({"text": "x"}))
        .send()
        .await;
    assert_eq!(text(&answered(&echoed)), "x");
    let mut stream = session.calling(2, "input", json!({})).stream().await;
    let asked = question(&mut stream).await;
    assert_eq!(session.reply(&asked, accept("Ann")).await, 202);
    assert_eq!(text(&stream.next().await), "Ann!");
}

#[tokio::test]
async fn a_refusal_with_status_200_is_one() {
    let rig = rig().await;
    rig.upstream.refuse_politely();
    let session = Session::open(rig.client()).await;
    assert!(session.name.starts_with("raincheck-"), "{}", session.name);
}

#[tokio::test]
async fn a_call_may_be_a_task_whose_question_comes_on_the_sessions_stream() {
    let rig = rig().await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.http(Method::GET).stream().await;
    let params = json!({"name": "ask", "arguments": {}, "task": {}});
    let created = session.ask("tools/call", params).await;
    let id = &created["result"]["task"]["taskId"];
    let asked = stream.next_of("elicitation/create").await;
    let related = &asked["params"]["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related["taskId"], *id);
    assert_eq!(session.reply(&asked, accept("Ada")).await, 202);
    let result = session.ask("tasks/result", json!({"taskId": id})).await;
    assert!(text(&result).contains("Ada"), "{result}");
    let listed = session.ask("tools/list", json!({})).await;
    assert_eq!(
        listed["result"]["tools"][0]["execution"]["taskSupport"],
        "optional"
    );
}
