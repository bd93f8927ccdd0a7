//! A reload while raincheck serves: rules and limits change for the calls that come, all of them or none.

use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::issuer::Issuer;
use crate::support::operator::with_operators;
use crate::support::{
    Client, Config, Era, PATIENCE, Rig, TempDir, eventually, in_both_eras, within,
};

in_both_eras!(
    a_call_that_runs_keeps_its_rules_and_the_next_has_the_new_ones,
    a_smaller_limit_counts_the_calls_that_run,
    limits_of_the_process_change_while_it_serves,
    a_scope_that_is_new_is_asked_for_at_once,
);

/// The proxy with another file of settings, which it has not read yet.
struct Reloading {
    operators: Client,
    rig: Rig,
}

impl Reloading {
    async fn start(era: Era, config: Config) -> Self {
        let rig = Rig::start(era, with_operators(config)).await;
        let operators = Client::of(rig.proxy.operators().await);
        Self { operators, rig }
    }

    fn write(&self, config: Config) {
        let text = with_operators(config).text();
        self.rig.proxy.directory.file("raincheck.toml", &text);
    }

    async fn ask(&self) -> Answer {
        self.operators.http(Method::POST, "/reload").send().await
    }

    /// Writes the settings and has them read. Returns what was told of the reload.
    async fn take(&self, config: Config) -> Value {
        self.write(config);
        self.ask().await.of_status(200).unwrap().json()
    }
}

/// The names of the settings that a reload changed.
fn changed(told: &Value) -> Vec<&str> {
    let all = told["changed"].as_array().unwrap().iter();
    all.map(|it| it["setting"].as_str().unwrap()).collect()
}

async fn a_call_that_runs_keeps_its_rules_and_the_next_has_the_new_ones(era: Era) {
    let scene = Reloading::start(era, Config::never()).await;
    let rig = &scene.rig;
    let client = rig.client();
    let plain = client.calling("held", json!({"nonce": "plain"}));
    let plain = tokio::spawn(plain.send());
    rig.upstream.until_started("plain").await;

    let told = scene.take(Config::always()).await;
    assert_eq!(changed(&told), ["tasks.mode"]);
    assert_eq!(told["changed"][0]["before"], "never");
    assert_eq!(told["changed"][0]["after"], "always");
    assert_eq!(told["after_restart"], json!([]));
    let task = client.call("held", json!({"nonce": "task"})).await;
    let task = task.into_task();

    // Back to where it was: the task goes on as a task.
    scene.take(Config::never()).await;
    rig.upstream.release("plain");
    rig.upstream.release("task");
    let plain = within(PATIENCE, "the plain answer", plain).await.unwrap();
    plain.into_text();
    client.until(&task, "completed").await;
    let log = rig.proxy.log();
    let line = "a setting has changed setting=\"tasks.mode\" before=\"never\" after=\"always\"";
    assert_eq!(log.matches(line).count(), 1, "{log}");
    let shown = scene.operators.page("/config").await.json();
    assert_eq!(shown["tasks"]["mode"], "never");
}

async fn a_smaller_limit_counts_the_calls_that_run(era: Era) {
    let with = |limit: usize| {
        let terms = format!("concurrency = {limit}");
        Config::always().tool("held", &terms)
    };
    let scene = Reloading::start(era, with(2)).await;
    let rig = &scene.rig;
    let client = rig.client();
    let mut tasks = Vec::new();
    for nonce in ["a", "b"] {
        let task = client.call("held", json!({"nonce": nonce})).await;
        tasks.push(task.into_task());
        rig.upstream.until_started(nonce).await;
    }
    let told = scene.take(with(1)).await;
    assert_eq!(changed(&told), ["[[tools]] held: concurrency"]);
    for nonce in ["c", "d"] {
        let task = client.call("held", json!({"nonce": nonce})).await;
        tasks.push(task.into_task());
    }
    // One of two that run may be replaced by none: one is all that there may be.
    rig.upstream.release("a");
    client.until(&tasks[0], "completed").await;
    assert_eq!(rig.upstream.tally("c").started, 0);
    rig.upstream.release("b");
    rig.upstream.until_started("c").await;
    assert_eq!(rig.upstream.tally("d").started, 0);

    // A larger limit counts at once, also for a call that waits.
    scene.take(with(2)).await;
    rig.upstream.until_started("d").await;
    assert_eq!(rig.upstream.peak(), 2);
    for nonce in ["c", "d"] {
        rig.upstream.release(nonce);
    }
    for task in &tasks {
        client.until(task, "completed").await;
    }
}

async fn limits_of_the_process_change_while_it_serves(era: Era) {
    let with = |lines: &str| Config::always().section("limits", lines);
    let scene = Reloading::start(era, with("calls = 1")).await;
    let rig = &scene.rig;
    let client = rig.client();
    client.call("held", json!({"nonce": "a"})).await.into_task();
    rig.upstream.until_started("a").await;
    assert_eq!(client.call("echo", json!({})).await.status, 503);

    let told = scene
        .take(with("calls = 2\nbody_bytes_max = \"2KiB\""))
        .await;
    assert_eq!(changed(&told), ["limits.body_bytes_max", "limits.calls"]);
    let echo = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&echo, "completed").await;
    let large = client.call("echo", json!({"text": "x".repeat(4096)}));
    assert_eq!(large.await.status, 413);

    scene.take(with("tasks = 1")).await;
    let refused = client.call("echo", json!({})).await.refusal();
    assert_eq!(refused.1, -32603, "two tasks are kept already");
    scene.take(with("tasks = 1")).await;
    let metrics = scene.operators.page("/metrics").await.body;
    for line in [
        r#"raincheck_reloads_total{outcome="changed"} 2"#,
        r#"raincheck_reloads_total{outcome="unchanged"} 1"#,
        r#"raincheck_reloads_total{outcome="failed"} 0"#,
        r#"raincheck_limit{limit="limits.tasks"} 1"#,
        r#"raincheck_limit_highest{limit="limits.tasks"} 2"#,
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

async fn a_scope_that_is_new_is_asked_for_at_once(era: Era) {
    let issuer = Issuer::start().await;
    let with = |lines: &str| issuer.wanted_by(Config::always().tool("echo", lines), "");
    let scene = Reloading::start(era, with("mode = \"always\"")).await;
    let rig = &scene.rig;
    let said = "the keys of an issuer were fetched";
    rig.proxy.until_said(said, 1).await;
    let token = issuer.token_with("alice", json!({"scope": "read"}), json!({}));
    let client = rig.client().named(token);
    client.call("echo", json!({})).await.into_task();
    let told = scene
        .take(with("mode = \"always\"\nscopes = [\"run\"]"))
        .await;
    assert_eq!(changed(&told), ["[[tools]] echo: scopes"]);
    assert_eq!(client.call("echo", json!({})).await.refusal().0, 403);
    scene
        .take(with("mode = \"always\"\nscopes = [\"read\"]"))
        .await;
    client.call("echo", json!({})).await.into_task();
}

#[tokio::test]
async fn a_broken_file_of_any_kind_leaves_everything_as_it_was() {
    let tokens = TempDir::new();
    let hash = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    tokens.file("tokens", &format!("alice: {hash}"));
    let path = tokens.path().join("tokens");
    let auth = format!("tokens_file = \"{}\"", path.display());
    let with = |config: Config| config.section("auth", &auth);
    let scene = Reloading::start(Era::Modern, with(Config::never())).await;
    let client = scene.rig.client().named("Bearer alice");

    // The settings are good, and the file of tokens is not.
    tokens.file("tokens", "alice: nonsense");
    scene.write(with(Config::always()));
    let refused = scene.ask().await;
    assert_eq!(refused.status, 409);
    assert!(
        refused.body.contains("auth.tokens_file"),
        "{}",
        refused.body
    );
    assert!(!refused.body.contains("nonsense"), "{}", refused.body);
    client.call("echo", json!({"text": "x"})).await.into_text();

    tokens.file("tokens", &format!("alice: {hash}"));
    for (text, named) in [
        ("[tasks\nmode = \"always\"", "line 1 is not TOML"),
        ("[tasks]\nmode = \"sometimes\"", "tasks.mode"),
        ("[tasks]\nmdoe = \"always\"", "did you mean mode?"),
        ("[limits]\ncalls = 0", "limits.calls"),
        ("[[tools]]\nname = \"{\"", "[[tools]] #1: name"),
    ] {
        scene.rig.proxy.directory.file("raincheck.toml", text);
        let refused = scene.ask().await;
        assert_eq!(refused.status, 409, "{text}");
        assert!(refused.body.contains(named), "{}", refused.body);
    }
    let directory = scene.rig.proxy.directory.path();
    std::fs::remove_file(directory.join("raincheck.toml")).unwrap();
    let refused = scene.ask().await;
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("cannot be read"), "{}", refused.body);
    // Who sends a signal has nothing but the log.
    scene.rig.proxy.hang_up();
    let said = "the settings have a mistake";
    scene.rig.proxy.until_said(said, 7).await;
    let failed = "raincheck_reloads_total{outcome=\"failed\"} 8";
    eventually(PATIENCE, "every failure is counted", async || {
        let metrics = scene.operators.page("/metrics").await.body;
        let is_counted = metrics.contains(failed);
        if is_counted { Ok(()) } else { Err(metrics) }
    })
    .await;
    client.call("echo", json!({"text": "x"})).await.into_text();
    let shown = scene.operators.page("/config").await.json();
    assert_eq!(shown["tasks"]["mode"], "never");
}

#[tokio::test]
async fn what_needs_a_restart_is_named_until_there_is_one_and_secrets_stay_secret() {
    let scene = Reloading::start(Era::Modern, Config::never()).await;
    let with = |token: &str| {
        let drain = format!("grace = \"5s\"\ntoken = \"{token}\"");
        let admin = "listen = \"127.0.0.1:0\"\nprobes = \"127.0.0.1:0\"";
        let config = Config::always().section("admin", admin);
        config.section("drain", &drain)
    };
    for (reload, secret) in ["first-secret-word", "other-secret-word"]
        .iter()
        .enumerate()
    {
        let text = with(secret).text();
        scene.rig.proxy.directory.file("raincheck.toml", &text);
        let answer = scene.ask().await;
        let told = answer.json();
        let restart = json!(["admin.probes", "drain.grace", "drain.token"]);
        assert_eq!(told["after_restart"], restart, "{}", answer.body);
        assert_eq!(changed(&told).len(), usize::from(reload == 0));
        assert!(!answer.body.contains("secret-word"), "{}", answer.body);
    }
    let log = scene.rig.proxy.log();
    for setting in ["admin.probes", "drain.grace", "drain.token"] {
        let line = format!("a changed setting needs a restart setting=\"{setting}\"");
        assert_eq!(log.matches(&line).count(), 2, "{log}");
    }
    assert!(!log.contains("secret-word"), "{log}");
    scene.rig.client().call("echo", json!({})).await.into_task();
}

#[tokio::test]
async fn reloads_while_calls_come_lose_none_of_them() {
    let with = |limit: usize| {
        let terms = format!("concurrency = {limit}\nqueue = 200");
        Config::always().tool("slow", &terms)
    };
    let scene = Reloading::start(Era::Modern, with(3)).await;
    let client = scene.rig.client();
    let ended = AtomicUsize::new(0);
    let calls = (0..60).map(|_| async {
        let task = client.call("slow", json!({"ms": 5})).await.into_task();
        client.until(&task, "completed").await;
        ended.fetch_add(1, Ordering::Relaxed);
    });
    let calling = futures_util::future::join_all(calls);
    let reloading = async {
        let mut limit = 0;
        while ended.load(Ordering::Relaxed) < 60 {
            limit = limit % 3 + 1;
            scene.take(with(limit)).await;
        }
    };
    let both = async { tokio::join!(calling, reloading) };
    within(PATIENCE * 2, "all calls end", both).await;
    assert!(scene.rig.upstream.peak() <= 3);
    assert_eq!(scene.rig.upstream.tally("slow").finished, 60);
}
