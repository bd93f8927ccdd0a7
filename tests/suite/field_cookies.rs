//! The cookies of a session, by which load balancers find its node.

use hyper::Method;
use serde_json::json;

use crate::support::client::Client;
use crate::support::pair::Pair;
use crate::support::session::{NEWEST, Session};
use crate::support::upstream::Upstream;
use crate::support::{Config, Era, Rig};

#[tokio::test]
async fn calls_come_to_the_node_of_their_session_and_to_no_other_callers() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    rig.upstream.stick();
    for round in 0..3 {
        for caller in ["Bearer ann", "Bearer bob"] {
            let client = rig.client().named(caller);
            let nonce = format!("{caller} {round}");
            let arguments = json!({"text": "x", "nonce": nonce});
            let task = client.call("echo", arguments).await.into_task();
            let state = client.until(&task, "completed").await;
            assert_eq!(state["result"]["content"][0]["text"], "x");
            assert_eq!(rig.upstream.tally(&nonce).started, 1);
        }
    }
    assert_eq!(rig.upstream.strays(), 0);
    rig.upstream.until_listened().await;
}

/// A question is answered, and the session is ended, where it lives.
#[tokio::test]
async fn whatever_is_said_on_a_session_comes_to_its_node() {
    let mut rig = Rig::start(Era::Legacy, Config::always()).await;
    rig.upstream.stick();
    let client = rig.client();
    let task = client.call("ask", json!({})).await.into_task();
    let asked = client.until(&task, "input_required").await;
    let key = asked["inputRequests"].as_object().unwrap().keys().next();
    let name = json!({"action": "accept", "content": {"name": "ann"}});
    let answer = json!({(key.unwrap().clone()): name});
    client.update(&task, answer).await.assert_acknowledged();
    client.until(&task, "completed").await;
    rig.proxy.stop().await;
    rig.upstream.until_sessions_ended(1).await;
    assert_eq!(rig.upstream.strays(), 0);
}

/// Clients over HTTP often keep no cookies. One that does is not disturbed.
#[tokio::test]
async fn a_client_s_own_session_has_its_cookies_too() {
    let rig = Rig::start(Era::Legacy, Config::auto("20s")).await;
    rig.upstream.stick();
    let ann = Session::open(rig.client().named("Bearer ann"), NEWEST).await;
    let bob = Session::open(rig.client().named("Bearer bob"), NEWEST).await;
    for session in [&ann, &bob] {
        let answer = session
            .calling(1, "echo", json!({"text": "x"}))
            .send()
            .await;
        assert_eq!(answer.json()["result"]["content"][0]["text"], "x");
        let list = session.request(2, "tools/list", json!({})).send().await;
        assert!(list.json()["result"].is_object(), "{}", list.body);
        assert_eq!(session.http(Method::GET).stream().await.status, 200);
        let own = format!("mine=1; node=of-{}", session.name);
        let ping = session.request(3, "ping", json!({})).header("cookie", &own);
        assert!(ping.send().await.json()["result"].is_object());
    }
    assert_eq!(rig.upstream.strays(), 0);
    let sent = rig.upstream.requests("ping");
    assert!(sent[0].header("cookie").unwrap().starts_with("mine=1"));
    // Another caller that names the session does not get its cookies.
    let stolen = ann.at(rig.client().named("Bearer bob"));
    let answer = stolen.request(4, "ping", json!({})).send().await;
    assert_eq!((answer.status, rig.upstream.strays()), (404, 1));
    for session in [&ann, &bob] {
        assert_eq!(session.end().await, 200);
    }
    assert_eq!(rig.upstream.strays(), 1);
}

#[tokio::test]
async fn a_call_is_carried_on_with_the_cookies_of_its_session() {
    let upstream = Upstream::start(Era::Legacy).await;
    upstream.keep_events();
    upstream.stick();
    let seal = format!("seal_key = {:?}", crate::support::pair::SEAL_KEY);
    let shared = "shared = true\ntrust_annotations = true";
    let config = Config::always().section("upstream", shared).store(&seal);
    let mut pair = Pair::of(upstream, config).await;
    let client = |address| Client::of(address);
    let at_a = client(pair.a.address());
    let task = at_a.call("steps", json!({"n": 2})).await.into_task();
    pair.until_resumable(&task).await;
    let record = pair.record(&task).await;
    assert!(!record.contains("node="), "{record}");
    pair.a.kill();
    pair.upstream.release("steps");
    let state = pair.at_b().until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "stepped");
    assert_eq!(pair.upstream.tally("steps").started, 1);
    assert_eq!(pair.upstream.strays(), 0);
}
