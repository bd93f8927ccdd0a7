//! What operators see: an end in the log for each task, and metrics that say the same.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::json;

use crate::counted::until_at;
use crate::redis_server::RedisServer;
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::session::accept;
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Rig, eventually, in_both_eras};

in_both_eras!(
    each_task_ends_with_a_line_and_is_counted,
    a_call_that_gets_its_answer_is_counted_without_a_task,
    both_sides_of_a_request_are_measured,
    an_operator_sees_how_near_each_limit_was,
    an_outage_of_the_store_does_not_fill_the_log,
);

const TOKEN: &str = "correct-horse-battery-staple";

/// What no line and no label may hold.
const SECRET: &str = "b4e1c0de-argument";

/// The samples of the metrics page, by name and labels.
async fn samples(rig: &Rig) -> BTreeMap<String, f64> {
    let operators = Client::of(rig.proxy.operators().await);
    let page = operators.page("/metrics").await.of_status(200).unwrap();
    let text = page.body;
    assert!(!text.contains(SECRET), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// Waits until the log has so many lines about an end.
async fn until_ended(rig: &Rig, count: usize) -> String {
    let what = format!("{count} ends are in the log");
    eventually(PATIENCE, &what, async || {
        let log = rig.proxy.log();
        let ends = log.lines().filter(|line| line.contains("task ended"));
        if ends.count() == count {
            Ok(log)
        } else {
            Err(log)
        }
    })
    .await
}

async fn each_task_ends_with_a_line_and_is_counted(era: Era) {
    let rig = Rig::start(era, with_operators(Config::always())).await;
    let client = rig.client();
    for _ in 0..3 {
        let task = client
            .call("echo", json!({"text": SECRET}))
            .await
            .into_task();
        client.until(&task, "completed").await;
    }
    let task = client
        .call("fail", json!({"nonce": SECRET}))
        .await
        .into_task();
    client.until(&task, "completed").await;
    let task = client
        .call("held", json!({"nonce": SECRET}))
        .await
        .into_task();
    rig.upstream.until_started(SECRET).await;
    client.cancel(&task).await;
    client.until(&task, "cancelled").await;

    let log = until_ended(&rig, 5).await;
    assert!(!log.contains(SECRET), "{log}");
    assert!(!log.contains(&task.id), "a task id is a handle: {log}");
    let held = log.lines().find(|line| line.contains("tool=held"));
    let held = held.unwrap_or_else(|| panic!("no line for the held task: {log}"));
    for field in [
        "outcome=\"cancelled\"",
        "seconds=",
        "queue_seconds=",
        "replica=",
    ] {
        assert!(held.contains(field), "{field}: {held}");
    }

    let samples = samples(&rig).await;
    let ended = |tool: &str, outcome: &str| {
        let labels = format!(r#"effect="",outcome="{outcome}",reason="",tool="{tool}""#);
        let name = format!("raincheck_tasks_ended_total{{{labels}}}");
        samples.get(&name).copied()
    };
    assert_eq!(ended("echo", "completed"), Some(3.0), "{samples:?}");
    assert_eq!(ended("fail", "tool_error"), Some(1.0), "{samples:?}");
    assert_eq!(ended("held", "cancelled"), Some(1.0), "{samples:?}");
    let fate = r#"raincheck_calls_total{fate="task",tool="echo"}"#;
    assert_eq!(samples.get(fate), Some(&3.0), "{samples:?}");
    assert_eq!(samples.get("raincheck_ready"), Some(&1.0), "{samples:?}");
    let created = r#"raincheck_store_operation_seconds_count{operation="create",outcome="ok"}"#;
    assert_eq!(samples.get(created), Some(&5.0), "{samples:?}");
}

async fn a_call_that_gets_its_answer_is_counted_without_a_task(era: Era) {
    let rig = Rig::start(era, with_operators(Config::auto("10s"))).await;
    let client = rig.client();
    client
        .call("echo", json!({"text": SECRET}))
        .await
        .into_result();
    client.call("fail", json!({})).await.into_result();
    let seen = samples(&rig).await;
    let plain = |tool: &str| {
        let name = format!(r#"raincheck_calls_total{{fate="plain",tool="{tool}"}}"#);
        seen.get(&name).copied()
    };
    assert_eq!(
        (plain("echo"), plain("fail")),
        (Some(1.0), Some(1.0)),
        "{seen:?}"
    );
    let failed = r#"raincheck_call_duration_seconds_count{outcome="tool_error",tool="fail"}"#;
    assert_eq!(seen.get(failed), Some(&1.0), "{seen:?}");
    assert!(
        !seen
            .keys()
            .any(|name| name.starts_with("raincheck_tasks_ended"))
    );
}

#[tokio::test]
async fn a_task_that_ended_on_another_replica_is_found_by_the_beginning_of_its_id() {
    let pair = Pair::start(Era::Modern, "[admin]\nlisten = \"127.0.0.1:0\"").await;
    let client = Client::of(pair.a.address());
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&task, "completed").await;
    let beginning = &task.id[..8];
    for proxy in [&pair.a, &pair.b] {
        let operators = Client::of(proxy.operators().await);
        // The end of a task reaches the other replica a moment later.
        eventually(PATIENCE, "the task is found", async || {
            let shown = operators.page(&format!("/tasks/{beginning}")).await.json();
            (shown["id"] == *task.id).then_some(()).ok_or(shown)
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_before_its_answer_is_measured() {
    let rig = Rig::start(Era::Modern, with_operators(Config::never())).await;
    let call = rig.client().calling("held", json!({"nonce": "a"}));
    let call = tokio::spawn(async move { call.send().await });
    rig.upstream.until_started("a").await;
    call.abort();
    let left = r#"mcp_server_operation_duration_seconds_count{error_type="cancelled",gen_ai_tool_name="held",mcp_method_name="tools/call",mcp_protocol_version="2026-07-28",network_transport="tcp",rpc_response_status_code=""}"#;
    until_at(&rig.proxy, left, 1.0).await;
}

/// The samples of a histogram's count, by the labels that matter here.
fn measured(seen: &BTreeMap<String, f64>, side: &str, parts: &[&str]) -> f64 {
    let name = format!("mcp_{side}_operation_duration_seconds_count");
    let fits = |key: &&String| key.starts_with(&name) && parts.iter().all(|it| key.contains(it));
    seen.iter()
        .filter(|(key, _)| fits(key))
        .map(|(_, count)| count)
        .sum()
}

async fn both_sides_of_a_request_are_measured(era: Era) {
    let rig = Rig::start(
        era,
        with_operators(Config::auto("10s").tool("work", "mode = \"always\"")),
    )
    .await;
    let client = rig.client();
    client
        .call("echo", json!({"text": SECRET}))
        .await
        .into_result();
    client.call("fail", json!({})).await.into_result();
    client.call("error", json!({})).await;
    let task = client.call("work", json!({"ms": 1})).await.into_task();
    client.until(&task, "completed").await;
    let steps = json!({"n": 2, "nonce": "s"});
    rig.upstream.release("s");
    let streamed = client.calling("steps", steps).edit(|message| {
        message["params"]["_meta"]["progressToken"] = json!(1);
    });
    streamed.send().await;

    let seen = samples(&rig).await;
    for side in ["server", "client"] {
        let count = |parts: &[&str]| Some(measured(&seen, side, parts));
        let good = r#"error_type="""#;
        assert_eq!(
            count(&[r#"tool_name="echo""#, good]),
            Some(1.0),
            "{side}: {seen:?}"
        );
        let failed = [r#"tool_name="fail""#, r#"error_type="tool_error""#];
        assert_eq!(count(&failed), Some(1.0), "{side}: {seen:?}");
        let code = [r#"tool_name="error""#, r#"status_code="-3"#];
        assert_eq!(count(&code), Some(1.0), "{side}: {seen:?}");
        assert_eq!(
            count(&[r#"tool_name="work""#, good]),
            Some(1.0),
            "{side}: {seen:?}"
        );
        assert_eq!(
            count(&[r#"tool_name="steps""#, good]),
            Some(1.0),
            "{side}: {seen:?}"
        );
    }
    let polls = [
        r#"method_name="tasks/get""#,
        r#"version="2026-07-28""#,
        r#"transport="tcp""#,
    ];
    assert!(measured(&seen, "server", &polls) >= 1.0, "{seen:?}");
    let heads = seen["raincheck_upstream_response_seconds_count"];
    assert!(heads >= 5.0, "five calls went to the server: {seen:?}");
    check_metrics(&rig).await;
}

async fn an_operator_sees_how_near_each_limit_was(era: Era) {
    let limits = "calls = 7\ntasks = 6\nbuffer_bytes_max = \"8MiB\"";
    let config = with_operators(Config::always()).section("limits", limits);
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let mut tasks = Vec::new();
    for nonce in ["a", "b"] {
        let held = client.call("held", json!({"nonce": nonce})).await;
        tasks.push(held.into_task());
        rig.upstream.until_started(nonce).await;
    }
    for (task, nonce) in tasks.iter().zip(["a", "b"]) {
        rig.upstream.release(nonce);
        client.until(task, "completed").await;
    }
    let large = json!({"text": "x".repeat(100_000)});
    let task = client.call("echo", large).await.into_task();
    client.until(&task, "completed").await;
    let seen = samples(&rig).await;
    let [most, limit] = ["raincheck_limit_highest", "raincheck_limit"].map(|name| {
        let seen = &seen;
        move |of: &str| seen.get(&format!("{name}{{limit={of:?}}}")).copied()
    });
    // What has ended stays in view.
    for (name, used, max) in [("limits.calls", 2.0, 7.0), ("limits.tasks", 3.0, 6.0)] {
        assert_eq!(
            (most(name), limit(name)),
            (Some(used), Some(max)),
            "{name}: {seen:?}"
        );
    }
    for name in [
        "limits.connections",
        "limits.task_bytes",
        "limits.buffer_bytes_max",
    ] {
        let (used, max) = (most(name).unwrap(), limit(name).unwrap());
        assert!(0.0 < used && used < max, "{name}: {used} of {max}");
    }
    assert!(
        most("limits.buffer_bytes_max").unwrap() > 80_000.0,
        "{seen:?}"
    );
    // Nobody says who calls, so no caller has a share.
    assert_eq!(limit("limits.calls_per_caller"), None);
}

/// Lets Prometheus's own tool judge a scrape.
async fn check_metrics(rig: &Rig) {
    let operators = Client::of(rig.proxy.operators().await);
    let page = operators.page("/metrics").await.of_status(200).unwrap();
    let mut promtool = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("promtool is installed (tests/setup.sh)");
    std::io::Write::write_all(&mut promtool.stdin.take().unwrap(), page.body.as_bytes()).unwrap();
    let judged = promtool.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&judged.stderr);
    assert!(
        judged.status.success() && complaint.is_empty(),
        "{complaint}"
    );
}

async fn an_outage_of_the_store_does_not_fill_the_log(era: Era) {
    let mut redis = RedisServer::start();
    let config = Config::always()
        .redis(&redis.url())
        .store("read_patience = \"50ms\"");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    redis.kill();
    for _ in 0..100 {
        let asking = (0..10).map(|_| client.asking("tasks/get", &task).send());
        for answer in futures_util::future::join_all(asking).await {
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE.as_u16());
        }
    }
    let log = rig.proxy.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    let begins = "the store does not answer; no call becomes a task";
    assert!(warnings.iter().any(|line| line.contains(begins)), "{log}");
    assert!(warnings.len() <= 3, "{warnings:#?}");
}

#[tokio::test]
async fn strangers_learn_nothing() {
    let config = Config::always().section(
        "admin",
        &format!("listen = \"127.0.0.1:0\"\ntoken = {TOKEN:?}"),
    );
    let rig = Rig::start(Era::Modern, config).await;
    let operators = Client::of(rig.proxy.operators().await);
    let refused = operators.page("/metrics").await;
    assert_eq!(refused.status, 401);
    assert!(!refused.body.contains("raincheck_"));
    let get = |path: &str| operators.http(hyper::Method::GET, path);
    let bearer = format!("Bearer {TOKEN}");
    let answer = get("/metrics")
        .header("authorization", &bearer)
        .send()
        .await;
    assert_eq!(answer.status, 200);
    let answer = get("/livez").header("authorization", &bearer).send().await;
    assert_eq!(answer.json(), json!({"live": true}));
    let nothing = get("/nothing")
        .header("authorization", &bearer)
        .send()
        .await;
    assert_eq!(nothing.status, 404);
}

/// The sum over replicas is the number of tasks that wait, whichever replica gets the answers.
#[tokio::test]
async fn tasks_that_wait_for_answers_are_counted_once() {
    for era in [Era::Legacy, Era::Modern] {
        let pair = Pair::with(era, "", with_operators).await;
        let at = async |proxy: &Proxy| {
            let page = Client::of(proxy.operators().await).page("/metrics").await;
            let value = |name: &str| -> u32 {
                let mut lines = page.body.lines();
                let line = lines.find_map(|line| line.strip_prefix(name)).unwrap();
                line.trim().parse().unwrap()
            };
            value("raincheck_tasks_waiting ")
        };
        let until = async |wanted: u32| {
            eventually(PATIENCE, &format!("{wanted} tasks wait"), async || {
                let sum = at(&pair.a).await + at(&pair.b).await;
                if sum == wanted { Ok(()) } else { Err(sum) }
            })
            .await;
        };
        until(0).await;
        let client = pair.at_a();
        let first = client.call("ask", json!({})).await.into_task();
        let other = client.call("ask", json!({})).await.into_task();
        let asked = client.until(&first, "input_required").await;
        client.until(&other, "input_required").await;
        until(2).await;
        let requests = asked["inputRequests"].as_object().unwrap();
        let key = requests.keys().next().unwrap().clone();
        let elsewhere = pair.at_b();
        let answer = json!({(key): accept("ann")});
        elsewhere.update(&first, answer).await.assert_acknowledged();
        elsewhere.until(&first, "completed").await;
        until(1).await;
        elsewhere.cancel(&other).await;
        until(0).await;
    }
}
