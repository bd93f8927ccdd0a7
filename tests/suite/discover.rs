//! `server/discover`: what the server can do, plus Tasks, always in time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::hosted::Session;
use crate::support::client::{Client, TASKS};
use crate::support::session::initialize;
use crate::support::{Config, Era, Rig, Upstream, in_both_eras, within};

in_both_eras!(
    discovery_says_what_the_server_can_do_plus_tasks,
    a_server_that_hangs_does_not_hang_discovery,
    a_server_that_went_away_is_still_known,
    a_server_that_comes_later_is_found,
    what_one_caller_heard_no_other_hears,
    an_error_of_the_server_s_is_passed_on,
);

/// The shortest patience of a real client over HTTP.
const PATIENCE: Duration = Duration::from_secs(5);

async fn discover(client: &Client) -> Value {
    let answer = client.request("server/discover", json!({})).send();
    within(PATIENCE, "an answer to server/discover", answer)
        .await
        .into_result()
}

#[track_caller]
fn assert_whole(result: &Value) {
    assert_eq!(result["resultType"], "complete", "{result}");
    let versions = result["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{result}");
    assert_eq!(
        result["capabilities"]["extensions"][TASKS],
        json!({}),
        "{result}"
    );
    assert!(result["capabilities"].get("tasks").is_none(), "{result}");
    assert!(result["ttlMs"].is_u64(), "{result}");
    assert!(result["cacheScope"].is_string(), "{result}");
}

#[track_caller]
fn assert_known(result: &Value, era: Era) {
    assert_whole(result);
    assert_eq!(
        result["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    assert_eq!(result["instructions"], "scripted");
    let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "scripted", "{result}");
    let extensions = &result["capabilities"]["extensions"];
    match era {
        Era::Modern => assert_eq!(extensions["com.example/kept"], json!({"x": 1})),
        Era::Legacy => assert_eq!(result["capabilities"]["logging"], json!({})),
    }
}

async fn discovery_says_what_the_server_can_do_plus_tasks(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    for client in [
        rig.client(),
        rig.client().without_tasks(),
        rig.client().declaring(json!({})),
    ] {
        assert_known(&discover(&client).await, era);
    }
}

async fn a_server_that_hangs_does_not_hang_discovery(era: Era) {
    let upstream = Upstream::start(era).await;
    upstream.hang();
    let proxy = Config::always().start(&upstream.url()).await;
    let result = discover(&Client::of(proxy.address())).await;
    assert_whole(&result);
    assert_eq!(
        result["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    assert_eq!(result["ttlMs"], 0);
}

async fn a_server_that_went_away_is_still_known(era: Era) {
    let Rig { proxy, upstream } = Rig::start(era, Config::always()).await;
    let client = Client::of(proxy.address());
    assert_known(&discover(&client).await, era);
    drop(upstream);
    assert_known(&discover(&client).await, era);
}

async fn a_server_that_comes_later_is_found(era: Era) {
    let upstream = Upstream::start(era).await;
    let address = upstream.address();
    let proxy = Config::always().start(&upstream.url()).await;
    drop(upstream);
    let client = Client::of(proxy.address());
    assert_whole(&discover(&client).await);
    let upstream = Upstream::start_at(era, address).await;
    assert_known(&discover(&client).await, era);
    let task = client.call("echo", json!({"text": ""})).await.into_task();
    client.until(&task, "completed").await;
    drop(upstream);
}

/// What the server says to Alice is not meant for other callers.
async fn what_one_caller_heard_no_other_hears(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let alice = rig.client().named("Bearer alice");
    assert_known(&discover(&alice).await, era);
    rig.upstream.hang();
    assert_known(&discover(&alice).await, era);
    for other in [rig.client(), rig.client().named("Bearer bob")] {
        let result = discover(&other).await;
        assert_whole(&result);
        assert!(result.get("instructions").is_none(), "{result}");
        assert!(result.get("_meta").is_none(), "{result}");
        let extensions = &result["capabilities"]["extensions"];
        assert!(extensions.get("com.example/kept").is_none(), "{result}");
    }
}

async fn an_error_of_the_server_s_is_passed_on(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    assert_known(&discover(&rig.client().named("Bearer alice")).await, era);
    rig.upstream.forbid();
    for other in [rig.client(), rig.client().named("Bearer bob")] {
        let asked = other.request("server/discover", json!({})).send();
        let answer = within(PATIENCE, "an answer to server/discover", asked).await;
        assert_eq!(answer.json()["error"]["code"], -32001, "{}", answer.text);
        assert_eq!(answer.json()["error"]["message"], "not for you");
        assert!(answer.json().get("result").is_none());
    }
}

/// Nor has who is refused a session.
#[tokio::test]
async fn who_is_refused_or_not_heard_has_no_session_by_what_another_was_told() {
    let rig = Rig::start(Era::Modern, Config::always()).await;
    let alice = rig.client().named("Bearer alice");
    Session::open(alice).await;
    rig.upstream.forbid();
    let bob = || {
        let message = initialize("2025-11-25", json!({}));
        rig.client().named("Bearer bob").post(message.to_string())
    };
    let refused = bob().send().await;
    assert_eq!(refused.json()["error"]["message"], "not for you");
    assert!(!refused.headers.contains_key("mcp-session-id"));
    rig.upstream.hang();
    let unheard = within(3 * PATIENCE, "an answer to initialize", bob().send()).await;
    assert!(unheard.json().get("result").is_none(), "{}", unheard.text);
    assert!(!unheard.headers.contains_key("mcp-session-id"));
}
