//! The server has another address: `raincheck store move` gives it the tasks of its namespace.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::redis_server::RedisServer;
use crate::support::{Client, Config, Era, TempDir, Upstream};

/// `raincheck COMMAND` in front of this server, over this store.
fn raincheck(command: &[&str], upstream: &str, store: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(command)
        .args(["--upstream", upstream, "--store", store])
        .args(["--namespace", "suite"])
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[tokio::test]
async fn a_service_at_another_address_keeps_its_tasks() {
    let redis = RedisServer::start();
    let store = redis.url();
    let upstream = Upstream::start(Era::Modern).await;
    let config = Config::always().redis(&store);
    let mut proxy = config.clone().start(&upstream.url()).await;
    let client = Client::of(proxy.address());
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&task, "completed").await;

    let moved_to = upstream.url().replace("127.0.0.1", "localhost");
    let refused = raincheck(&["run", "--listen", "127.0.0.1:0"], &moved_to, &store);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("raincheck store move"),
        "{}",
        said(&refused)
    );
    let alive = raincheck(&["store", "move"], &moved_to, &store);
    assert_eq!(alive.status.code(), Some(1));
    assert!(
        said(&alive).contains("nothing was changed"),
        "{}",
        said(&alive)
    );
    assert_eq!(proxy.stop().await.code(), Some(0));

    let done = raincheck(&["store", "move", "--json"], &moved_to, &store);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(done["outcome"], "moved");
    assert_eq!(
        (&done["from"], &done["to"]),
        (&json!(upstream.url()), &json!(moved_to))
    );
    let again = raincheck(&["store", "move"], &moved_to, &store);
    assert_eq!(again.status.code(), Some(0));
    assert!(said(&again).contains("already"), "{}", said(&again));

    let proxy = config.start(&moved_to).await;
    let state = Client::of(proxy.address()).get(&task).await;
    assert_eq!(state["status"], "completed");
}

#[test]
fn only_a_namespace_remembers_its_server() {
    let directory = TempDir::new();
    let file = format!("redb:{}", directory.path().join("tasks.redb").display());
    for store in ["memory:", &file] {
        let moved = raincheck(
            &["store", "move", "--json"],
            "http://localhost:1/mcp",
            store,
        );
        assert_eq!(moved.status.code(), Some(0), "{}", said(&moved));
        assert!(said(&moved).contains("\"nameless\""), "{}", said(&moved));
    }
    assert!(!directory.path().join("tasks.redb").exists());
    let nowhere = "redis+unix:///nowhere/at/all?db=0";
    let moved = raincheck(&["store", "move"], "http://localhost:1/mcp", nowhere);
    assert_eq!(moved.status.code(), Some(1));
    assert!(
        said(&moved).contains("cannot be reached"),
        "{}",
        said(&moved)
    );
}
