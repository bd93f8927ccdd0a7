//! Each reason why raincheck itself ends a task, each fate of a call and each kind of recovery has a count that rises.

use serde_json::{Value, json};

use crate::support::pair::Pair;
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Rig, Upstream, eventually};

fn with_operators(config: Config) -> Config {
    config.section("admin", "listen = \"127.0.0.1:0\"")
}

/// What makes a task end so: the reason, its effect, the rule of the tool, the tool, and what happens to the server.
type Ending = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    fn(&Upstream),
);

const ENDINGS: [Ending; 6] = [
    (
        "upstream_unauthorized",
        "none",
        "",
        "echo",
        Upstream::challenge,
    ),
    ("upstream_http", "none", "", "echo", |server| {
        server.end_calls_with(400);
    }),
    ("upstream_http", "unknown", "", "echo", |server| {
        server.end_calls_with(500);
    }),
    (
        "upstream_too_large",
        "unknown",
        "result_bytes_max = \"64KiB\"",
        "big",
        |_| {},
    ),
    (
        "deadline",
        "unknown",
        "max_duration = \"1s\"",
        "never",
        |_| {},
    ),
    ("upstream_reset", "unknown", "", "steps", |server| {
        server.release("steps");
    }),
];

#[tokio::test]
async fn each_reason_of_the_server_is_counted() {
    for (reason, effect, terms, tool, happens) in ENDINGS {
        let rig = Rig::start(Era::Modern, with_operators(Config::always().terms(terms))).await;
        let client = rig.client();
        // The era of the server is known before anything happens to it.
        let first = client.call("slow", json!({})).await.into_task();
        client.until(&first, "completed").await;
        happens(&rig.upstream);
        let task = client
            .call(tool, json!({"bytes": 1 << 20, "then": "break"}))
            .await
            .into_task();
        client.until(&task, "failed").await;
        assert_counted(&rig, tool, reason, effect).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_no_result_is_counted() {
    let rig = Rig::start(Era::Modern, with_operators(Config::always())).await;
    let client = rig.client();
    let called = client.call("verbatim", json!({"result": "7"})).await;
    client.until(&called.into_task(), "failed").await;
    assert_counted(&rig, "verbatim", "upstream_invalid", "unknown").await;
}

async fn assert_counted(rig: &Rig, tool: &str, reason: &str, effect: &str) {
    let name = format!(
        "raincheck_tasks_ended_total{{effect=\"{effect}\",outcome=\"failed\",reason=\"{reason}\",tool=\"{tool}\"}}"
    );
    until_at(&rig.proxy, &name, 1.0).await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_counted() {
    let Rig { proxy, upstream } = Rig::start(Era::Modern, with_operators(Config::always())).await;
    let client = Client::of(proxy.address());
    let task = client.call("slow", json!({})).await.into_task();
    client.until(&task, "completed").await;
    drop(upstream);
    let task = client.call("echo", json!({})).await.into_task();
    client.until(&task, "failed").await;
    let name = "raincheck_tasks_ended_total{effect=\"none\",outcome=\"failed\",reason=\"upstream_unreachable\",tool=\"echo\"}";
    until_at(&proxy, name, 1.0).await;
}

/// The listener for operators answers until the process ends, and this process is not asked to.
#[tokio::test]
async fn what_a_drain_ends_is_counted() {
    let config = with_operators(Config::always()).section("drain", "grace = \"3s\"");
    let rig = Rig::start(Era::Modern, config).await;
    rig.client().call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    let operators = Client::of(rig.proxy.operators().await);
    operators.http(hyper::Method::POST, "/drain").send().await;
    let name = "raincheck_tasks_ended_total{effect=\"unknown\",outcome=\"failed\",reason=\"shutdown\",tool=\"never\"}";
    until_at(&rig.proxy, name, 1.0).await;
}

async fn value(proxy: &Proxy, name: &str) -> Option<f64> {
    let page = Client::of(proxy.operators().await).page("/metrics").await;
    let mut lines = page.body.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

async fn until_at(proxy: &Proxy, name: &str, wanted: f64) {
    eventually(PATIENCE, name, async || {
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

/// The rule, whether the server is shared, what the task does, and what the other replica did.
#[tokio::test]
async fn each_kind_of_recovery_is_counted() {
    for (terms, outcome, reason) in [
        ("on_owner_lost = \"rerun\"", "dispatched", None),
        ("", "failed", Some("owner_lost")),
    ] {
        let mut pair = Pair::with(Era::Modern, terms, |config| {
            with_operators(config.section("upstream", "shared = false"))
        })
        .await;
        pair.at_a().call("held", json!({})).await.into_task();
        pair.upstream.until_started("held").await;
        pair.a.kill();
        let name = format!("raincheck_recoveries_total{{outcome=\"{outcome}\"}}");
        until_at(&pair.b, &name, 1.0).await;
        if let Some(reason) = reason {
            let name = format!(
                "raincheck_tasks_ended_total{{effect=\"unknown\",outcome=\"failed\",reason=\"{reason}\",tool=\"held\"}}"
            );
            until_at(&pair.b, &name, 1.0).await;
        }
    }
    let mut pair = Pair::with(Era::Legacy, "", |config| {
        let shared = "shared = true\ntrust_annotations = true";
        let key = crate::support::pair::SEAL_KEY;
        with_operators(config.section("upstream", shared)).store(&format!("seal_key = {key:?}"))
    })
    .await;
    let task = pair.at_a().call("steps", json!({"n": 2})).await.into_task();
    let at_two = |state: &Value| state["statusMessage"] == "step 2";
    pair.at_a().until_it(&task, "at step 2", at_two).await;
    pair.a.kill();
    pair.upstream.release("steps");
    until_at(
        &pair.b,
        "raincheck_recoveries_total{outcome=\"resumed\"}",
        1.0,
    )
    .await;
}
