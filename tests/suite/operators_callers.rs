//! Whose task it is and how long its call took, as operators see it.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use crate::operators_log::sample;
use crate::support::operator::{OperatorEvents, raincheck, with_operators};
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::{Client, Config, Era, Proxy, Rig, TempDir, Upstream, in_both_eras};

in_both_eras!(
    a_task_names_its_caller_to_operators,
    the_seconds_of_a_task_count_from_the_beginning_of_its_call,
    progress_and_the_caller_are_in_the_events,
);

/// The clients whose tokens are their names.
fn known(clients: &[&str], config: Config) -> (TempDir, Config) {
    let files = TempDir::new();
    let lines = clients.iter().map(|name| {
        let hash = digest(&SHA256, name.as_bytes());
        let hash: Vec<String> = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        format!("{name}: {}\n", hash.concat())
    });
    files.file("tokens", &lines.collect::<String>());
    let path = files.path().join("tokens");
    let auth = format!("tokens_file = \"{}\"", path.display());
    (files, config.section("auth", &auth))
}

async fn end_of(proxy: &Proxy, count: usize) -> String {
    proxy.until_said("task ended", count).await;
    let log = proxy.log();
    let mut lines = log.lines().filter(|line| line.contains("task ended"));
    lines.next_back().unwrap().to_owned()
}

async fn a_task_names_its_caller_to_operators(era: Era) {
    let (_tokens, config) = known(&["alice", "bob"], with_operators(Config::always()));
    let rig = Rig::start(era, config).await;
    for name in ["alice", "bob"] {
        let client = rig.client().named(format!("Bearer {name}"));
        let task = client.call("echo", json!({"text": "x"})).await.into_task();
        client.until(&task, "completed").await;
    }
    let line = end_of(&rig.proxy, 2).await;
    assert!(line.contains("caller=\"bob\""), "{line}");
    let operators = Client::of(rig.proxy.operators().await);
    let found = operators.page("/tasks?caller=alice").await.json();
    assert_eq!(found["total"], 1, "{found}");
    assert_eq!(found["tasks"][0]["label"], "alice");
    let hash = found["tasks"][0]["caller"].as_str().unwrap();
    let by_hash = operators.page(&format!("/tasks?caller={hash}")).await;
    assert_eq!(by_hash.json()["total"], 1);
    let output = raincheck(&rig.proxy, &["tasks", "list", "--caller", "alice"]).await;
    let list = String::from_utf8_lossy(&output.stdout);
    assert!(list.contains("  alice") && !list.contains("bob"), "{list}");
}

async fn the_seconds_of_a_task_count_from_the_beginning_of_its_call(era: Era) {
    let rig = Rig::start(era, with_operators(Config::auto("1s"))).await;
    let client = rig.client();
    let task = client.call("held", json!({"nonce": "n"})).await.into_task();
    rig.upstream.release("n");
    client.until(&task, "completed").await;
    let line = end_of(&rig.proxy, 1).await;
    let (_, seconds) = line.split_once(" seconds=").unwrap();
    let seconds: f64 = seconds.split(' ').next().unwrap().parse().unwrap();
    assert!(seconds >= 1.0, "the call waited a second: {line}");
    let operators = Client::of(rig.proxy.operators().await);
    let shown = operators.page(&format!("/tasks/{}", task.id)).await.json();
    assert_eq!(shown["timeline"][0]["what"], "the call began", "{shown}");
    assert!(shown["seconds"].as_u64().unwrap() >= 1, "{shown}");
    // The metric counts the life of the task.
    let sum = "raincheck_task_duration_seconds_sum{outcome=\"completed\",tool=\"held\"}";
    let life = sample(&rig, sum).await.unwrap();
    assert!(life < seconds - 0.9, "{life} of {seconds}");
}

async fn progress_and_the_caller_are_in_the_events(era: Era) {
    let (_tokens, config) = known(&["alice"], with_operators(Config::always()));
    let rig = Rig::start(era, config).await;
    let mut events = OperatorEvents::of(&rig.proxy).await;
    events.until(":\n\n").await;
    let client = rig.client().named("Bearer alice");
    let told = client
        .call("steps", json!({"n": 3, "nonce": "n"}))
        .await
        .into_task();
    events.until("event: progress\n").await;
    events.until("\"label\":\"alice\"").await;
    rig.upstream.release("n");
    client.until(&told, "completed").await;
}

#[tokio::test]
async fn the_caller_of_a_task_is_known_at_every_replica_and_sealed_in_the_store() {
    const NAME: &str = "alice-of-accounting";
    for (seal, is_readable) in [("off", true), ("payloads", false)] {
        let (_tokens, config) = known(&[NAME], with_operators(Config::always()));
        let store = format!("seal_key = {SEAL_KEY:?}\nseal = {seal:?}");
        let upstream = Upstream::start(Era::Modern).await;
        let pair = Pair::of(upstream, config.store(&store)).await;
        let client = Client::of(pair.a.address()).named(format!("Bearer {NAME}"));
        let task = client.call("held", json!({"nonce": "n"})).await.into_task();
        let operators = Client::of(pair.b.operators().await);
        let found = operators.page(&format!("/tasks?caller={NAME}")).await;
        assert_eq!(found.json()["tasks"][0]["id"], task.id, "{}", found.body);
        let record = pair.record_bytes(&task).await;
        let mut parts = record.windows(NAME.len());
        assert_eq!(parts.any(|part| part == NAME.as_bytes()), is_readable);
    }
}
