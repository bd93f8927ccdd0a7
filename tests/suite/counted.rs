//! Each fate of a call, each kind of recovery and each limit has a count that rises. The reasons are in `counted_reasons`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::answer::Task;
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Rig, eventually};

pub(crate) async fn value(proxy: &Proxy, name: &str) -> Option<f64> {
    let page = Client::of(proxy.operators().await).page("/metrics").await;
    let mut lines = page.body.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

pub(crate) async fn until_at(proxy: &Proxy, name: &str, wanted: f64) {
    until_within(PATIENCE, proxy, name, wanted).await;
}

async fn until_within(patience: Duration, proxy: &Proxy, name: &str, wanted: f64) {
    eventually(patience, name, async || {
        let found = value(proxy, name).await;
        if found == Some(wanted) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn each_fate_of_a_call_is_counted() {
    let config = with_operators(Config::auto("5s"))
        .tool("ask", "input = \"before_task\"")
        .tool("held", "grace_window = \"50ms\"")
        .tool("echo", "mode = \"always\"");
    let rig = Rig::start(
        Era::Legacy,
        config.terms("companion_tools = true\nfallback_after = \"100ms\""),
    )
    .await;
    let client = rig.client();
    client.call("slow", json!({})).await.into_result();
    client.call("held", json!({"nonce": "a"})).await.into_task();
    client.call("ask", json!({})).await.into_result();
    rig.client()
        .without_tasks()
        .call("held", json!({"nonce": "b"}))
        .await
        .into_result();
    let keyed = || {
        client
            .calling("echo", json!({}))
            .header("idempotency-key", "k")
            .send()
    };
    keyed().await.into_task();
    keyed().await.into_task();
    for (fate, tool) in [
        ("plain", "slow"),
        ("task", "held"),
        ("question", "ask"),
        ("ticket", "held"),
        ("joined", "echo"),
    ] {
        let name = format!("raincheck_calls_total{{fate=\"{fate}\",tool=\"{tool}\"}}");
        until_at(&rig.proxy, &name, 1.0).await;
    }
}

/// What a metric counts by one label, as docs/metrics.md names its values in code font after `text`.
fn values_in_the_help(metric: &str, text: &str) -> Vec<String> {
    let page = include_str!("../../docs/metrics.md");
    let row = page
        .lines()
        .find(|line| line.contains(&format!("`{metric}`")));
    let (_, help) = row.unwrap().split_once(text).unwrap();
    help.split('`').skip(1).step_by(2).map(Into::into).collect()
}

async fn recovered(pair: &Pair, outcome: &str) {
    let name = format!("raincheck_recoveries_total{{outcome=\"{outcome}\"}}");
    until_at(&pair.b, &name, 1.0).await;
}

const RECOVERIES: [&str; 5] = [
    "resumed",
    "dispatched",
    "failed",
    "told",
    "waits_for_client",
];

#[test]
fn each_kind_of_recovery_has_a_test() {
    let listed = values_in_the_help("raincheck_recoveries_total", "by what it did:");
    assert_eq!(listed, RECOVERIES);
}

#[tokio::test]
async fn a_call_that_is_dispatched_again_or_failed_is_counted() {
    for (terms, outcome) in [("on_owner_lost = \"rerun\"", "dispatched"), ("", "failed")] {
        let mut pair = Pair::with(Era::Modern, terms, |config| {
            with_operators(config.section("upstream", "shared = false"))
        })
        .await;
        pair.at_a().call("held", json!({})).await.into_task();
        pair.upstream.until_started("held").await;
        pair.a.kill();
        recovered(&pair, outcome).await;
    }
}

/// Both replicas can carry on each other's calls, and answer operators.
async fn resumable() -> Pair {
    Pair::with(Era::Legacy, "", |config| {
        let shared = "shared = true\ntrust_annotations = true";
        let key = crate::support::pair::SEAL_KEY;
        with_operators(config.section("upstream", shared)).store(&format!("seal_key = {key:?}"))
    })
    .await
}

#[tokio::test]
async fn a_call_that_is_resumed_is_counted() {
    let mut pair = resumable().await;
    let task = pair.at_a().call("steps", json!({"n": 2})).await.into_task();
    let at_two = |state: &Value| state["statusMessage"] == "step 2";
    pair.at_a().until_it(&task, "at step 2", at_two).await;
    pair.a.kill();
    pair.upstream.release("steps");
    recovered(&pair, "resumed").await;
}

#[tokio::test]
async fn a_call_that_is_left_to_its_client_is_counted() {
    let mut pair = resumable().await;
    let alice = pair.at_a().named("Bearer alice");
    let task = alice.call("held", json!({})).await.into_task();
    pair.until_resumable(&task).await;
    let held = shown(&pair.a, &task).await;
    assert_eq!(held["if_lost"], "waits_for_client", "{held}");
    pair.a.kill();
    recovered(&pair, "waits_for_client").await;
    let left = shown(&pair.b, &task).await;
    assert_eq!(left["waits_for_client"], true, "{left}");
    assert!(left["replica"].is_null(), "{left}");
}

/// The task as operators see it.
async fn shown(proxy: &Proxy, task: &Task) -> Value {
    let operators = Client::of(proxy.operators().await);
    operators.page(&format!("/tasks/{}", task.id)).await.json()
}

#[tokio::test]
async fn a_server_that_is_told_in_place_of_its_owner_is_counted() {
    let pair = resumable().await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.until_resumable(&task).await;
    pair.a.freeze();
    pair.at_b().cancel(&task).await.assert_acknowledged();
    recovered(&pair, "told").await;
    pair.a.thaw();
}

/// What makes each limit refuse, in the file of the test that reads its count.
pub(crate) const LIMITS: [(&str, &str); 11] = [
    ("limits.calls", include_str!("operators_log.rs")),
    ("limits.calls_per_caller", include_str!("auth_shares.rs")),
    ("limits.requests_per_caller", include_str!("auth_shares.rs")),
    ("drain", include_str!("drain.rs")),
    ("queue", include_str!("operators_log.rs")),
    ("paused", include_str!("pauses.rs")),
    ("limits.tasks", include_str!("operators_log.rs")),
    ("limits.body_bytes_max", include_str!("operators_log.rs")),
    ("limits.buffer_bytes_max", include_str!("floods.rs")),
    ("limits.connections", include_str!("attack_shares.rs")),
    ("upstream.sessions_max", include_str!("counted.rs")),
];

/// The metric has each limit from the start.
#[tokio::test]
async fn each_limit_has_a_test_that_reads_its_count() {
    let rig = Rig::start(Era::Modern, with_operators(Config::always())).await;
    let page = Client::of(rig.proxy.operators().await)
        .page("/metrics")
        .await;
    let of_limit = |line: &str| {
        let (limit, _) = line
            .strip_prefix("raincheck_refusals_total{limit=\"")?
            .split_once('"')?;
        Some(limit.to_owned())
    };
    let mut shown: Vec<_> = page.body.lines().filter_map(of_limit).collect();
    let mut tested = LIMITS.map(|(limit, _)| limit.to_owned()).to_vec();
    shown.sort_unstable();
    tested.sort_unstable();
    assert_eq!(shown, tested);
    for (limit, test) in LIMITS {
        let names = test.matches(&format!("{limit}\\\"}}")).count()
            + test.matches(&format!("\"{limit}\"")).count();
        assert!(
            names > 0 && test.contains("raincheck_refusals_total"),
            "{limit}"
        );
    }
}

/// A request that no task stands for waits half a minute for a session.
#[tokio::test]
async fn a_request_without_a_session_is_counted() {
    let config = with_operators(Config::always()).section("upstream", "sessions_max = 1");
    let rig = Rig::start(Era::Legacy, config).await;
    let client = rig.client();
    client.call("held", json!({"nonce": "a"})).await.into_task();
    rig.upstream.until_started("a").await;
    let listed = client.request("prompts/list", json!({}));
    let listed = listed.or_hang_up_after(PATIENCE * 3).await;
    let answer = listed.expect("an answer").json();
    let reason = &answer["error"]["data"]["io.raincheck/reason"];
    assert_eq!(reason, "sessions_in_use", "{answer}");
    let name = "raincheck_refusals_total{limit=\"upstream.sessions_max\"}";
    until_at(&rig.proxy, name, 1.0).await;
}
