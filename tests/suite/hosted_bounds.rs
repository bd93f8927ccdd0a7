//! What one legacy session in front of a modern-only server can have, and that none of it is lost.

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};

use crate::hosted::{Session, answered, question};
use crate::support::client::{Answer, Client};
use crate::support::pair::Pair;
use crate::support::session::{SESSION, accept, initialize};
use crate::support::{Config, Era, Rig};

const URIS_MAX: usize = 256;
const CALLS_MAX: u64 = 256;

#[track_caller]
fn assert_refused(answer: &Value, says: &str) {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(says), "{message}");
}

#[tokio::test]
async fn what_a_client_says_of_itself_is_bounded() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    let long = "x".repeat(17 * 1024);
    let mut info = initialize("2025-11-25", json!({}));
    info["params"]["clientInfo"]["name"] = json!(long);
    let capable = initialize("2025-11-25", json!({"experimental": {"x": {"y": long}}}));
    for message in [info, capable] {
        let answer = rig.client().post(message.to_string()).send().await;
        assert!(!answer.headers.contains_key("mcp-session-id"));
        assert_refused(&answered(&answer), "16 KiB");
    }
}

#[tokio::test]
async fn what_a_session_subscribes_to_is_bounded() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let subscribe = |uri: String| session.ask("resources/subscribe", json!({"uri": uri}));
    let long = format!("test://{}", "x".repeat(2048));
    assert_refused(&subscribe(long).await, "too long");
    for n in 0..URIS_MAX {
        let done = subscribe(format!("test://{n}")).await;
        assert_eq!(done["result"], json!({}), "{n}: {done}");
    }
    assert_refused(&subscribe("test://more".into()).await, "too many");
    // Room comes back, and what is there already takes none.
    assert_eq!(subscribe("test://0".into()).await["result"], json!({}));
    session
        .ask("resources/unsubscribe", json!({"uri": "test://0"}))
        .await;
    assert_eq!(subscribe("test://more".into()).await["result"], json!({}));
}

#[tokio::test]
async fn calls_that_wait_for_their_client_are_bounded() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let mut waiting = Vec::new();
    for id in 0..CALLS_MAX {
        let mut stream = session.calling(id, "ask", json!({})).stream().await;
        let asked = question(&mut stream).await;
        waiting.push((stream, asked));
    }
    let busy = async || {
        session
            .calling(1000, "echo", json!({"text": "x"}))
            .send()
            .await
    };
    let refused: Answer = busy().await;
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.json()["error"]["data"]["io.raincheck/reason"],
        "busy"
    );
    assert_eq!(
        refused.json()["error"]["data"]["io.raincheck/effect"],
        "none"
    );
    // Another session has its own.
    let other = Session::open(rig.client()).await;
    answered(
        &other
            .calling(1000, "echo", json!({"text": "x"}))
            .send()
            .await,
    );
    let (mut stream, asked) = waiting.pop().unwrap();
    assert_eq!(session.reply(&asked, accept("Ada")).await, 202);
    stream.next_of_answer().await;
    answered(&busy().await);
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_not_kept() {
    let pair = Pair::start(Era::Modern, "").await;
    let session = Session::open(pair.at_a()).await;
    for id in ["raincheck/x", "raincheck/x.y", "raincheck/"] {
        let stray = json!({"id": id});
        assert_eq!(session.reply(&stray, accept("Eve")).await, 202);
    }
    let mut store = pair.connect().await;
    let mut all: Vec<String> = redis::cmd("KEYS")
        .arg("*:n:*")
        .query_async(&mut store)
        .await
        .unwrap();
    // The fingerprint of the seal key, which each replica looks for when it starts.
    all.retain(|key| !key.contains(":n:f"));
    assert_eq!(all.len(), 1, "the session alone: {all:?}");
}

#[tokio::test]
async fn no_change_of_a_session_is_lost_between_replicas() {
    let pair = Pair::start(Era::Modern, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let uris: Vec<String> = (0..20).map(|n| format!("test://{n:02}")).collect();
    let subscribing = uris.iter().enumerate().map(|(n, uri)| {
        let session = if n % 2 == 0 { &at_a } else { &at_b };
        session.ask("resources/subscribe", json!({"uri": uri}))
    });
    let level = at_b.ask("logging/setLevel", json!({"level": "error"}));
    let (all, level) = tokio::join!(join_all(subscribing), level);
    for done in all.iter().chain([&level]) {
        assert_eq!(done["result"], json!({}), "{done}");
    }
    let _news = at_a.http(Method::GET).stream().await;
    pair.upstream.until_listened().await;
    let listens = pair.upstream.requests("subscriptions/listen");
    let filter = &listens[0].json()["params"]["notifications"];
    assert_eq!(filter["resourceSubscriptions"], json!(uris), "{filter}");
    at_a.calling(2, "echo", json!({})).send().await;
    let sent = pair.upstream.requests("tools/call")[0].json();
    let level = &sent["params"]["_meta"]["io.modelcontextprotocol/logLevel"];
    assert_eq!(level, "error");
}

/// An unused session is soon forgotten, and the sessions of one caller are bounded.
#[tokio::test]
async fn sessions_that_nobody_uses_are_bounded() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    let used = Session::open(rig.client()).await;
    let begin = |client: Client| {
        let large = json!({"experimental": {"x": {"y": "x".repeat(15 * 1024)}}});
        client
            .post(initialize("2025-11-25", large).to_string())
            .send()
    };
    // 4 MiB of one caller are some 270 of these: each further one takes the place of the oldest.
    let mut begun = Vec::new();
    for _ in 0..20 {
        for answer in join_all((0..25).map(|_| begin(rig.client()))).await {
            assert_eq!(answer.status, 200, "{}", answer.text);
            begun.push(answer.headers[SESSION].to_str().unwrap().to_owned());
        }
    }
    for (name, status) in [(&begun[0], 404), (&begun[499], 200)] {
        let pinged = used.named(name).request(9, "ping", json!({}));
        assert_eq!(pinged.send().await.status, status);
    }
    // Sessions of other callers and sessions in use are not forgotten.
    let other = begin(rig.client().named("Bearer other")).await;
    assert!(other.headers.contains_key("mcp-session-id"));
    assert_eq!(used.ask("ping", json!({})).await["result"], json!({}));
}
