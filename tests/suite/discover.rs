//! `server/discover`: what the server can do, plus Tasks, always in time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, TASKS};
use crate::support::{Config, Era, Rig, Upstream, in_both_eras, within};

in_both_eras!(
    discovery_says_what_the_server_can_do_plus_tasks,
    a_server_that_hangs_does_not_hang_discovery,
    a_server_that_went_away_is_still_known,
    a_server_that_comes_later_is_found,
);

/// The shortest patience of a real client.
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
