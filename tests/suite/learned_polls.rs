//! `pollIntervalMs` follows how long the calls of a tool take.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::client::Task;
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::{Client, Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras};

in_both_eras!(
    the_interval_follows_the_calls_of_the_tool,
    an_interval_that_the_operator_chose_stays,
    replicas_learn_from_each_other_and_remember,
);

/// What an unknown tool begins with.
const USUAL: u64 = 2_000;

fn config() -> Config {
    Config::learning()
        .poll_hold("15s")
        .section("admin", "listen = \"127.0.0.1:0\"")
}

async fn slow(client: &Client, ms: u64) -> Task {
    client.call("slow", json!({"ms": ms})).await.into_task()
}

fn interval(task: &Task) -> u64 {
    task.created["pollIntervalMs"].as_u64().unwrap()
}

/// Ends that many calls, one after the other, each seen by a poll that waits.
async fn calls(client: &Client, count: usize, ms: u64) {
    for _ in 0..count {
        let task = slow(client, ms).await;
        client.until(&task, "completed").await;
    }
}

async fn the_interval_follows_the_calls_of_the_tool(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client();
    assert_eq!(interval(&slow(&client, 200).await), USUAL);
    calls(&client, 10, 200).await;
    let task = slow(&client, 200).await;
    assert!((10..200).contains(&interval(&task)), "{}", task.created);
    let other = client.call("echo", json!({})).await.into_task();
    assert_eq!(interval(&other), USUAL, "of another tool nothing is known");
    let ended = client.until(&task, "completed").await;
    assert_eq!(
        ended["pollIntervalMs"], USUAL,
        "and what has ended is polled no more"
    );

    let operators = Client::of(rig.proxy.operators().await);
    let shown = operators.page(&format!("/tasks/{}", task.id)).await.json();
    let usual = &shown["usual"];
    assert!(usual["tasks"].as_u64().unwrap() >= 11, "{shown}");
    let (median, p90) = (usual["median_ms"].as_u64(), usual["p90_ms"].as_u64());
    assert!(median.unwrap() >= 180 && p90 >= median, "{shown}");
}

async fn an_interval_that_the_operator_chose_stays(era: Era) {
    let chosen = config().tool("slow", "poll_interval = \"3s\"");
    let rig = Rig::start(era, chosen).await;
    calls(&rig.client(), 10, 10).await;
    assert_eq!(interval(&slow(&rig.client(), 10).await), 3_000);
}

async fn replicas_learn_from_each_other_and_remember(era: Era) {
    let upstream = Upstream::start(era).await;
    let sealed = format!("seal = \"payloads\"\nseal_key = {SEAL_KEY:?}");
    let config = config().section("upstream", "shared = true").store(&sealed);
    let mut pair = Pair::of(upstream, config).await;
    let (at_a, at_b) = (pair.at_a(), pair.at_b());
    tokio::join!(calls(&at_a, 10, 100), calls(&at_b, 6, 100));
    // A replica writes what it counted when it ends, too.
    assert!(pair.a.stop().await.success());
    assert!(pair.b.stop().await.success());
    let report = check(&pair, "polling").await;
    assert!(report.contains("slow: half end within 0.1 s"), "{report}");
    assert!(
        report.contains("(16 tasks)"),
        "no call of either is lost: {report}"
    );
    let again = pair.another("c").await;
    let client = Client::of(again.address());
    let learned = async || {
        let task = slow(&client, 100).await;
        let interval = interval(&task);
        (interval < 100).then_some(()).ok_or(interval)
    };
    eventually(PATIENCE, "the new replica knows the tool", learned).await;
}

/// What `raincheck check` says of this subject.
pub(crate) async fn check(pair: &Pair, subject: &str) -> String {
    let file = pair.a.directory.path().join("raincheck.toml");
    let out = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["check", "--json", "--upstream", &pair.upstream.url()])
        .args(["--store", &pair.redis.url(), "--config"])
        .arg(file)
        .output()
        .await
        .unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|found| found["subject"] == subject);
    found.map_or_else(|| report.to_string(), |found| found["text"].to_string())
}
