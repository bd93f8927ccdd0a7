//! Legacy clients whose calls take long: tickets on their sessions, in front of a server with an
//! address and of a program.

use std::ops::Deref;

use serde_json::{Value, json};

use crate::hosted::answered;
use crate::redis_server::RedisServer;
use crate::support::client::Client;
use crate::support::session::{self, SESSION, initialize};
use crate::support::upstream::{Greeting, Upstream};
use crate::support::{Config, Era, PATIENCE, Proxy, Rig, eventually, within};

const NAMES: [&str; 4] = ["task_status", "task_result", "task_cancel", "task_answer"];

/// Tickets after a moment for what waits.
fn config() -> Config {
    patient()
        .tool("{held,steps,hold,slow}", "fallback_after = \"100ms\"")
        .tool("ask", "fallback_after = \"2s\"")
}

/// No tickets while the tests look.
fn patient() -> Config {
    let terms = "companion_tools = true\nfallback_after = \"20s\"";
    Config::auto("10s").terms(terms)
}

/// A session whose calls are answered with tickets.
#[derive(Debug)]
struct Session(session::Session);

impl Deref for Session {
    type Target = session::Session;

    fn deref(&self) -> &session::Session {
        &self.0
    }
}

impl Session {
    async fn open(client: Client) -> Self {
        Self::of(client, "2025-06-18").await
    }

    async fn of(client: Client, version: &'static str) -> Self {
        let mut hello = initialize(version, json!({"elicitation": {}}));
        hello["id"] = json!(0);
        Self(session::Session::greeting(client, version, &hello).await.0)
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.calling(7, tool, arguments).send().await;
        assert_eq!(answer.json()["id"], 7);
        let result = answer.into_result();
        assert!(
            result.get("resultType").is_none(),
            "no word of 2026: {result}"
        );
        result
    }

    async fn ticket(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        let ticket = result["structuredContent"]["ticket"].as_str();
        ticket.unwrap_or_else(|| panic!("{result}")).to_owned()
    }

    async fn names(&self) -> Vec<String> {
        let list = self
            .request(json!("l"), "tools/list", json!({}))
            .send()
            .await;
        let list = list.into_result();
        let tools = list["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

async fn over_http() -> (Rig, Session) {
    let rig = Rig::start(Era::Legacy, config()).await;
    let session = Session::open(rig.client()).await;
    (rig, session)
}

async fn over_lines() -> (Proxy, Session) {
    let proxy = config().run("legacy").await;
    let session = Session::open(Client::of(proxy.address())).await;
    (proxy, session)
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn a_call_of_a_session_becomes_a_ticket() {
    let (rig, session) = over_http().await;
    let quick = session
        .calling(1, "echo", json!({"text": "x"}))
        .send()
        .await;
    assert!(quick.text.contains(crate::support::upstream::FAITHFUL));
    let ticket = session.ticket("held", json!({})).await;
    let soon = json!({"ticket": ticket, "wait_seconds": 0});
    let status = session.call("task_status", soon).await;
    assert_eq!(status["structuredContent"]["state"], "working");
    rig.upstream.release("held");
    let result = session.call("task_result", json!({"ticket": ticket})).await;
    let released = json!([{"type": "text", "text": "released"}]);
    assert_eq!(result, json!({"content": released, "isError": false}));
    assert_eq!(rig.upstream.tally("held").started, 1);
}

#[tokio::test]
async fn a_session_lists_the_tools() {
    let (rig, session) = over_http().await;
    let names = session.names().await;
    assert_eq!(names[names.len() - 4..], NAMES);
    assert!(names.contains(&"echo".to_owned()));
    rig.upstream.offer("task_status");
    let names = session.names().await;
    assert_eq!(names[names.len() - 4], "raincheck_task_status");
}

#[tokio::test]
async fn what_is_no_call_passes() {
    let (rig, session) = over_http().await;
    let pong = session.request(json!(1), "ping", json!({})).send().await;
    assert_eq!(pong.into_result(), json!({}));
    assert_eq!(rig.upstream.requests("ping").len(), 1);
}

/// A session of a revision that knows none.
#[tokio::test]
async fn a_wish_for_a_task_means_nothing() {
    let (_rig, session) = over_http().await;
    let params = json!({"name": "held", "arguments": {}, "task": {}});
    let given = session.request(json!(2), "tools/call", params).send().await;
    assert!(given.into_result()["structuredContent"]["ticket"].is_string());
}

#[tokio::test]
async fn errors_of_the_server_are_its_own() {
    let (rig, session) = over_http().await;
    let answer = session.calling(1, "error", json!({})).send().await;
    assert!(
        answer.text.contains(
            r#""error":{"code":-32050,"message":"no such luck","data":{"z":1.10,"a":[]}}"#
        )
    );
    let unknown = session.calling(2, "no such tool", json!({})).send().await;
    assert_eq!(unknown.refusal(), (200, -32602), "as the server said it");
    drop(rig);
}

#[tokio::test]
async fn progress_comes_under_the_clients_token() {
    let rig = Rig::start(Era::Legacy, patient()).await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "steps", json!({"n": 2})).stream().await;
    let progress = stream.next_of("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "t");
    rig.upstream.release("steps");
    loop {
        let message = stream.next().await;
        if message["id"] == 1 {
            break;
        }
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let (rig, session) = over_http().await;
    let calling = tokio::spawn(session.calling(1, "held", json!({})).send());
    rig.upstream.until_started("held").await;
    calling.abort();
    // Meanwhile the proxy has seen it go, and the moment of its ticket is over.
    let ticket = session.ticket("held", json!({"nonce": "other"})).await;
    rig.upstream.release("held");
    let ended = |tally: crate::support::upstream::Tally| tally.finished == 1;
    rig.upstream.until("held", "finished", ended).await;
    let cancelled = session.call("task_cancel", json!({"ticket": ticket})).await;
    assert_eq!(cancelled["structuredContent"]["state"], "cancelled");
    let ended = |tally: crate::support::upstream::Tally| tally.cancelled == 1;
    rig.upstream.until("other", "cancelled", ended).await;
}

#[tokio::test]
async fn a_client_cancels_by_its_own_id() {
    let rig = Rig::start(Era::Legacy, patient()).await;
    let session = Session::open(rig.client()).await;
    let call = session.calling(5, "held", json!({})).stream();
    let call = tokio::spawn(call);
    rig.upstream.until_started("held").await;
    let again = session.calling(5, "held", json!({})).send().await;
    let refused = answered(&again);
    assert_eq!(refused["error"]["code"], -32600, "it was sent twice");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {
        "requestId": 5,
    }});
    assert_eq!(session.post(&cancel).send().await.status, 202);
    let cancelled = |tally: crate::support::upstream::Tally| tally.cancelled == 1;
    rig.upstream.until("held", "cancelled", cancelled).await;
    let mut stream = within(PATIENCE, "the stream of the call", call)
        .await
        .unwrap();
    assert!(stream.next_or_end().await.is_none(), "and no answer");
}

#[tokio::test]
async fn a_question_after_the_ticket_is_answered_by_it() {
    let (rig, session) = over_http().await;
    let ticket = session.ticket("steps", json!({"then": "ask"})).await;
    rig.upstream.release("steps");
    let asks = session.call("task_status", json!({"ticket": ticket})).await;
    assert_eq!(asks["structuredContent"]["state"], "input_required");
    assert_eq!(
        asks["structuredContent"]["questions"]["q1"]["params"]["message"],
        "Your name?"
    );
    let answer = json!({
        "ticket": ticket, "key": "q1", "action": "accept", "content": {"name": "Ada"},
    });
    session.call("task_answer", answer).await;
    let result = session.call("task_result", json!({"ticket": ticket})).await;
    assert_eq!(text(&result), "Ada");
}

#[tokio::test]
async fn a_question_before_the_ticket_is_put_to_the_client() {
    let rig = Rig::start(Era::Legacy, patient()).await;
    let session = Session::open(rig.client()).await;
    for (result, said) in [
        (
            json!({"action": "accept", "content": {"name": "Ada"}}),
            "Ada",
        ),
        (json!({"action": "decline"}), "decline"),
    ] {
        let mut stream = session.calling(1, "ask", json!({})).stream().await;
        let question = stream.next_of("elicitation/create").await;
        assert_eq!(question["params"]["message"], "Your name?");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        assert_eq!(session.post(&answer).send().await.status, 202);
        let answered = stream.next().await;
        assert_eq!(text(&answered["result"]), said);
    }
}

#[tokio::test]
async fn a_call_whose_answer_the_server_refuses_is_cancelled_there() {
    let rig = Rig::start(Era::Legacy, patient()).await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let question = stream.next_of("elicitation/create").await;
    rig.upstream.refuse_answers();
    let result = json!({"action": "decline"});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    assert_eq!(session.post(&answer).send().await.status, 202);
    let failed = stream.next().await;
    let data = &failed["error"]["data"];
    assert_eq!(data["io.raincheck/effect"], "unknown", "{failed}");
    rig.upstream
        .until("ask", "cancelled", |tally| tally.cancelled == 1)
        .await;
}

#[tokio::test]
async fn a_question_that_nobody_answers_is_in_the_ticket() {
    let (_rig, session) = over_http().await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    stream.next_of("elicitation/create").await;
    let given = stream.next().await;
    let given = &given["result"]["structuredContent"];
    assert_eq!(given["state"], "input_required");
    let answer = json!({
        "ticket": given["ticket"], "key": "q1", "action": "accept", "content": {"name": "Ada"},
    });
    session.call("task_answer", answer).await;
    let result = session
        .call("task_result", json!({"ticket": given["ticket"]}))
        .await;
    assert_eq!(text(&result), "Ada");
}

/// By its own id, although nothing else tells the clients of such a server apart.
#[tokio::test]
async fn clients_without_sessions_use_one_id_at_the_same_time() {
    let rig = Rig::start(Era::Legacy, patient()).await;
    rig.upstream.have_no_sessions();
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    }});
    let post = |message: &Value| {
        let post = rig.client().post(message.to_string());
        post.header("mcp-protocol-version", "2025-11-25")
    };
    let hello = post(&hello).send().await;
    assert!(!hello.headers.contains_key(SESSION));
    let mut streams = Vec::new();
    for nonce in ["one", "two"] {
        let params = json!({"name": "steps", "arguments": {"n": 1, "nonce": nonce}, "_meta": {
            "progressToken": nonce,
        }});
        let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let mut stream = post(&call).stream().await;
        let note = stream.next_of("notifications/progress").await;
        assert_eq!(note["params"]["progressToken"], nonce);
        streams.push(stream);
    }
    let params = json!({"requestId": 7});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(post(&cancel).send().await.status, 202);
    for (mut stream, nonce) in streams.into_iter().zip(["one", "two"]) {
        rig.upstream.release(nonce);
        let answer = stream.next().await;
        assert_eq!(answer["id"], 7, "{answer}");
        assert_eq!(text(&answer["result"]), "stepped");
        let tally = rig.upstream.tally(nonce);
        assert_eq!((tally.started, tally.finished, tally.cancelled), (1, 1, 0));
    }
}

/// The store takes its time, and the client answers meanwhile.
#[tokio::test]
async fn an_answer_that_comes_while_the_ticket_is_made_is_not_lost() {
    let redis = RedisServer::start();
    let config = patient().tool("ask", "fallback_after = \"1s\"");
    let rig = Rig::start(Era::Legacy, config.redis(&redis.url())).await;
    let session = Session::open(rig.client()).await;
    let mut stream = session.calling(1, "ask", json!({})).stream().await;
    let question = stream.next_of("elicitation/create").await;
    redis.freeze();
    // A call that takes longer than there is until the ticket.
    let longer = session.calling(2, "slow", json!({"ms": 1500}));
    assert_eq!(text(&longer.send().await.into_result()), "slept");
    let accept = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": accept});
    assert_eq!(session.post(&answer).send().await.status, 202);
    redis.thaw();
    let given = stream.next().await;
    let ticket = &given["result"]["structuredContent"]["ticket"];
    assert!(ticket.is_string(), "{given}");
    let result = session.call("task_result", json!({"ticket": ticket})).await;
    assert_eq!(text(&result), "Ada");
}

/// As of a client that opens a session for each call, and ends it with the answer.
#[tokio::test]
async fn a_ticket_outlives_the_session_that_asked() {
    let (rig, session) = over_http().await;
    let ticket = session.ticket("held", json!({})).await;
    let others = Session::open(rig.client()).await;
    for _ in 0..2 {
        assert_eq!(session.end().await, 200, "at once");
    }
    let soon = json!({"ticket": ticket, "wait_seconds": 0});
    let status = others.call("task_status", soon).await;
    assert_eq!(status["structuredContent"]["state"], "working");
    let ended = || rig.upstream.sessions_ended();
    assert_eq!((rig.upstream.tally("held").cancelled, ended()), (0, 0));
    rig.upstream.release("held");
    let result = others.call("task_result", json!({"ticket": ticket})).await;
    assert_eq!(text(&result), "released");
    // Behind the call, once.
    rig.upstream.until_sessions_ended(1).await;
    assert_eq!(others.end().await, 200, "nothing runs there");
    assert_eq!(ended(), 2);
}

#[tokio::test]
async fn a_ticket_outlives_the_session_that_asked_a_program() {
    let (proxy, session) = over_lines().await;
    let ticket = session.ticket("slow", json!({"ms": 2_000})).await;
    assert_eq!(session.end().await, 200, "at once");
    let others = Session::open(Client::of(proxy.address())).await;
    let result = others.call("task_result", json!({"ticket": ticket})).await;
    assert_eq!(text(&result), "slept");
    // Whether it is over can only be asked for.
    let gone = async || {
        let ping = session.request(json!(1), "ping", json!({}));
        ping.send().await.of_status(404)
    };
    eventually(PATIENCE, "the end of the session", gone).await;
}

#[tokio::test]
async fn a_session_with_a_program_has_tickets_too() {
    let (_proxy, session) = over_lines().await;
    let names = session.names().await;
    assert_eq!(names[names.len() - 4..], NAMES);
    let ticket = session.ticket("hold", json!({"nonce": "a"})).await;
    let soon = json!({"ticket": ticket, "wait_seconds": 0});
    let status = session.call("task_status", soon).await;
    assert_eq!(status["structuredContent"]["state"], "working");
    let cancelled = session.call("task_cancel", json!({"ticket": ticket})).await;
    assert_eq!(cancelled["structuredContent"]["state"], "cancelled");
    assert_eq!(text(&session.call("echo", json!({"text": "x"})).await), "x");
}

#[tokio::test]
async fn nothing_of_it_is_there_unless_it_is_wanted() {
    let rig = Rig::start(Era::Legacy, Config::auto("10s")).await;
    let session = Session::open(rig.client()).await;
    assert!(!session.names().await.contains(&"task_status".to_owned()));
    let raw = session
        .calling(3, "echo", json!({"text": "x"}))
        .send()
        .await;
    assert!(
        raw.text.contains("related-task"),
        "it passes unread: {}",
        raw.text
    );
}

/// The client lists the tools once, and a server of its time says nothing of its era by itself.
#[tokio::test]
async fn the_first_client_of_all_is_told_of_the_tools() {
    for greeting in [Greeting::Answer, Greeting::AnswerStreamed] {
        for version in ["2025-06-18", "2025-11-25"] {
            let upstream = Upstream::start(Era::Legacy).await;
            upstream.greet(greeting);
            let proxy = config().start(&upstream.url()).await;
            let session = Session::of(Client::of(proxy.address()), version).await;
            let names = session.names().await;
            assert_eq!(names[names.len() - 4..], NAMES, "{greeting:?} {version}");
            session.ticket("held", json!({})).await;
        }
    }
}
