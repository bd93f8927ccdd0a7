//! Fair shares: what one caller takes, the others still have.

use serde_json::json;

use crate::operators_log::sample;
use crate::support::client::Client;
use crate::support::issuer::Issuer;
use crate::support::{Config, Era, PATIENCE, Rig, eventually};

async fn behind(issuer: &Issuer, limits: &str) -> Rig {
    let config = Config::always().section("limits", limits);
    started(issuer, Era::Modern, config).await
}

async fn started(issuer: &Issuer, era: Era, config: Config) -> Rig {
    let config = config.section("admin", "listen = \"127.0.0.1:0\"");
    let rig = Rig::start(era, issuer.wanted_by(config, "")).await;
    rig.proxy
        .until_said("the keys of an issuer were fetched", 1)
        .await;
    rig
}

async fn listed(client: &Client) -> (u16, String) {
    let answer = client.request("tools/list", json!({})).send().await;
    (answer.status, answer.body)
}

/// Whatever token it shows, and on however many connections.
#[tokio::test]
async fn one_caller_leaves_requests_to_others() {
    let issuer = Issuer::start().await;
    let rig = behind(&issuer, "requests_per_caller = 2").await;
    let alice = || rig.client().named(issuer.token("alice"));
    let first = alice().listen(&[]).await;
    let _second = alice().listen(&[]).await;
    let (status, body) = listed(&alice()).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("limits.requests_per_caller"), "{body}");
    let counted = "raincheck_refusals_total{limit=\"limits.requests_per_caller\"}";
    assert_eq!(sample(&rig, counted).await, Some(1.0));
    let bob = rig.client().named(issuer.token("bob"));
    assert_eq!(listed(&bob).await.0, 200);
    // A refusal takes no share, and a stream that has ended gives its share back.
    drop(first);
    eventually(PATIENCE, "there is room again", async || {
        let (status, body) = listed(&alice()).await;
        (status == 200).then_some(()).ok_or(body)
    })
    .await;
}

#[tokio::test]
async fn one_caller_leaves_calls_to_others() {
    let issuer = Issuer::start().await;
    let rig = behind(&issuer, "calls_per_caller = 1").await;
    let alice = || rig.client().named(issuer.token("alice"));
    let task = alice()
        .call("held", json!({"nonce": "n"}))
        .await
        .into_task();
    rig.upstream.until_started("n").await;
    let refused = alice().call("echo", json!({"text": "x"})).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(refused.headers["retry-after"], "1");
    let data = &refused.json()["error"]["data"];
    assert_eq!(
        (&data["io.raincheck/reason"], &data["io.raincheck/effect"]),
        (&json!("busy"), &json!("none"))
    );
    let counted = "raincheck_refusals_total{limit=\"limits.calls_per_caller\"}";
    assert_eq!(sample(&rig, counted).await, Some(1.0));
    let bob = rig.client().named(issuer.token("bob"));
    bob.call("echo", json!({"text": "x"})).await.into_task();
    rig.upstream.release("n");
    alice().until(&task, "completed").await;
    eventually(PATIENCE, "there is room again", async || {
        let answer = alice().call("echo", json!({"text": "x"})).await;
        (answer.status == 200).then_some(()).ok_or(answer.body)
    })
    .await;
}

/// A header that nobody checks makes other callers of a client, and no other share.
#[tokio::test]
async fn invented_headers_multiply_no_share() {
    let issuer = Issuer::start().await;
    let config = Config::always()
        .section("limits", "calls_per_caller = 2\ntasks_per_caller = 3")
        .section("auth", "credential_headers = [\"x-api-key\"]");
    let rig = started(&issuer, Era::Modern, config).await;
    let alice = rig.client().named(issuer.token("alice"));
    let as_if =
        |key: &str, tool, arguments| alice.calling(tool, arguments).header("x-api-key", key);
    for key in ["a", "b"] {
        let call = as_if(key, "held", json!({"nonce": key}));
        call.send().await.into_task();
        rig.upstream.until_started(key).await;
    }
    let refused = async |key, reason| {
        let answer = as_if(key, "echo", json!({"text": "x"})).send().await;
        let data = &answer.json()["error"]["data"];
        assert_eq!(data["io.raincheck/reason"], reason, "{}", answer.body);
    };
    refused("c", "busy").await;
    for key in ["a", "b"] {
        rig.upstream.release(key);
    }
    eventually(PATIENCE, "there is room again", async || {
        let answer = as_if("d", "echo", json!({"text": "x"})).send().await;
        (answer.status == 200).then_some(()).ok_or(answer.body)
    })
    .await;
    refused("e", "quota").await;
    let bob = rig.client().named(issuer.token("bob"));
    bob.call("echo", json!({"text": "x"})).await.into_task();
}

/// A call waits for a session of its caller, while there are sessions for others.
#[tokio::test]
async fn one_caller_leaves_sessions_to_others() {
    let issuer = Issuer::start().await;
    let config = Config::always().section("upstream", "sessions_max = 2");
    let rig = started(&issuer, Era::Legacy, config).await;
    let alice = || rig.client().named(issuer.token("alice"));
    let hold = async |nonce| alice().call("held", json!({"nonce": nonce})).await;
    let first = hold("first").await.into_task();
    rig.upstream.until_started("first").await;
    let second = hold("second").await.into_task();
    let bob = rig.client().named(issuer.token("bob"));
    for _ in 0..3 {
        let task = bob.call("echo", json!({"text": "x"})).await.into_task();
        bob.until(&task, "completed").await;
    }
    assert_eq!(rig.upstream.tally("second").started, 0);
    rig.upstream.release("first");
    alice().until(&first, "completed").await;
    rig.upstream.until_started("second").await;
    rig.upstream.release("second");
    alice().until(&second, "completed").await;
}
