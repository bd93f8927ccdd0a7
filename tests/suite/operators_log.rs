//! What the log says to an operator: how raincheck starts, what is refused and why, and what is probably a mistake.

use std::io::{BufRead as _, BufReader};

use hyper::Method;
use serde_json::{Value, json};

use crate::operators_tasks::post;
use crate::redis_server::RedisServer;
use crate::support::client::Task;
use crate::support::{Client, Config, Era, PATIENCE, Rig, eventually, in_both_eras};

in_both_eras!(
    a_line_names_the_caller_the_trace_and_the_task,
    each_request_has_a_line_where_that_is_wanted,
    what_a_limit_refuses_is_counted,
    each_limit_has_its_own_count,
    a_poll_that_is_late_and_an_end_that_is_seen_are_counted,
    nobody_writes_a_line_of_the_log,
);

const SECRET: &str = "b4e1c0de-argument";

async fn each_request_has_a_line_where_that_is_wanted(era: Era) {
    let config = Config::auto("10s").section("telemetry", "access_log = true");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    client
        .call("echo", json!({"text": SECRET}))
        .await
        .into_result();
    rig.proxy
        .until_said(" request method=\"tools/call\"", 1)
        .await;
    let log = rig.proxy.log();
    let line = log.lines().find(|line| line.contains("tools/call"));
    let line = line.unwrap_or_else(|| panic!("no line for the call: {log}"));
    for field in ["name=\"echo\"", "status=200", "seconds="] {
        assert!(line.contains(field), "{field}: {line}");
    }
    assert!(!log.contains(SECRET), "{log}");
}

/// One search finds the call, its task and its trace.
async fn a_line_names_the_caller_the_trace_and_the_task(era: Era) {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let config = Config::always().section("telemetry", "access_log = true");
    let rig = Rig::start(era, config).await;
    let call = rig.client().calling("echo", json!({"text": "x"}));
    let call = call.header("traceparent", &format!("00-{TRACE}-b7ad6b7169203331-01"));
    let task = call.send().await.into_task();
    let (beginning, _) = task.id.split_once('-').unwrap();
    rig.client().until(&task, "completed").await;
    rig.proxy.until_said("task ended", 1).await;
    let polled = "request method=\"tasks/get\"";
    rig.proxy.until_said(polled, 1).await;
    let log = rig.proxy.log();
    let line = |text: &str| {
        let found = log.lines().find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("{text}: {log}"))
    };
    let called = line("request method=\"tools/call\"");
    assert!(called.contains(&format!("trace=\"{TRACE}\"")), "{called}");
    let (_, hash) = called.split_once("caller_hash=").unwrap();
    let hash = hash.split(' ').next().unwrap();
    for line in [called, line(polled)] {
        assert!(line.contains(&format!("task=\"{beginning}")), "{line}");
    }
    let ended = line("task ended");
    assert!(ended.contains(&format!("caller_hash={hash}")), "{ended}");
    assert!(!log.contains(&task.id), "{log}");
}

#[tokio::test]
async fn a_client_that_goes_away_before_its_answer_has_a_line() {
    let config = Config::never().section("telemetry", "access_log = true");
    let rig = Rig::start(Era::Modern, config).await;
    let call = rig.client().calling("held", json!({"nonce": "a"}));
    let call = tokio::spawn(async move { call.send().await });
    rig.upstream.until_started("a").await;
    call.abort();
    rig.proxy.until_said("name=\"held\" status=499", 1).await;
}

#[tokio::test]
async fn the_access_log_is_silent_where_lines_of_information_are() {
    let config = Config::never()
        .section("telemetry", "access_log = true")
        .section("admin", "listen = \"127.0.0.1:0\"");
    let mut rig = Rig::start(Era::Modern, config).await;
    let operators = Client::of(rig.proxy.operators().await);
    for level in ["warn", "info", "info,raincheck::downstream=warn"] {
        post(&operators, "/level", json!({"level": level})).await;
        let name = format!("at {level}");
        rig.client().call(&name, json!({})).await;
    }
    rig.proxy.stop().await;
    let log = rig.proxy.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains(" request "))
        .collect();
    assert!(
        matches!(lines.as_slice(), [line] if line.contains("name=\"at info\"")),
        "{log}"
    );
}

/// A tool that collects logs may stop reading, and some clients never read what their servers log.
#[tokio::test]
async fn a_log_that_nobody_reads_holds_nothing_up() {
    let config = Config::never()
        .section(
            "telemetry",
            "access_log = true\nlog = \"debug\"\nformat = \"json\"",
        )
        .section("admin", "listen = \"127.0.0.1:0\"")
        .log_piped();
    let mut rig = Rig::start(Era::Modern, config).await;
    let mut log = BufReader::new(rig.proxy.pipe()).lines().map(Result::unwrap);
    let operators = log.find(|line| line.contains("answering operators"));
    let operators: Value = serde_json::from_str(&operators.unwrap()).unwrap();
    let operators = operators["address"].as_str().unwrap().parse().unwrap();
    let operators = Client::of(operators);
    let client = rig.client();
    // More lines than the pipe and the buffer take.
    let path = format!("/{}", "x".repeat(200));
    for round in 0.. {
        let asking = (0..50).map(|_| client.http(Method::POST, &path).send());
        for answer in futures_util::future::join_all(asking).await {
            assert_eq!(answer.status, 404);
        }
        client.call("echo", json!({})).await.into_result();
        let page = operators.page("/metrics").await.of_status(200).unwrap();
        if !page.body.contains("raincheck_log_lines_dropped_total 0\n") {
            break;
        }
        assert!(round < 500, "no line was dropped");
    }
    let told = log.find(|line| line.contains("lines of the log were dropped"));
    let told: Value = serde_json::from_str(&told.unwrap()).unwrap();
    assert!(told["lines"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(rig.proxy.stop().await.code(), Some(0), "nobody reads");
}

/// The value of one sample.
pub(crate) async fn sample(rig: &Rig, name: &str) -> Option<f64> {
    let operators = Client::of(rig.proxy.operators().await);
    let page = operators.page("/metrics").await.of_status(200).unwrap();
    let mut lines = page.body.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

async fn what_a_limit_refuses_is_counted(era: Era) {
    let config = Config::always().section("limits", "tasks = 1");
    let config = config.section("admin", "listen = \"127.0.0.1:0\"");
    let rig = Rig::start(era, config).await;
    let limit = "raincheck_refusals_total{limit=\"limits.tasks\"}";
    assert_eq!(sample(&rig, limit).await, Some(0.0), "known from the start");
    let client = rig.client();
    client.call("echo", json!({})).await.into_task();
    assert_eq!(client.call("echo", json!({})).await.refusal().1, -32603);
    let keyed = client
        .calling("echo", json!({}))
        .header("idempotency-key", "a");
    assert_eq!(keyed.send().await.refusal().1, -32603);
    assert_eq!(sample(&rig, limit).await, Some(2.0));
    let refused = "raincheck_calls_total{fate=\"refused\",tool=\"echo\"}";
    assert_eq!(sample(&rig, refused).await, Some(2.0));
    let plain = "raincheck_calls_total{fate=\"plain\",tool=\"echo\"}";
    assert_eq!(sample(&rig, plain).await, None, "a refusal is no answer");
}

async fn each_limit_has_its_own_count(era: Era) {
    let config = Config::always()
        .section("limits", "calls = 2\nbody_bytes_max = \"1MiB\"")
        .section("admin", "listen = \"127.0.0.1:0\"")
        .tool("look", "concurrency = 1\nqueue = 0");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    client.call("look", json!({"nonce": "a"})).await.into_task();
    rig.upstream.until_started("a").await;
    assert_eq!(client.call("look", json!({"nonce": "b"})).await.status, 503);
    client.call("held", json!({})).await.into_task();
    assert_eq!(client.call("echo", json!({})).await.status, 503);
    let large = client.call("echo", json!({"text": "x".repeat(2 << 20)}));
    assert_eq!(large.await.status, 413);
    for limit in ["queue", "limits.calls", "limits.body_bytes_max"] {
        let name = format!("raincheck_refusals_total{{limit=\"{limit}\"}}");
        assert_eq!(sample(&rig, &name).await, Some(1.0), "{limit}");
    }
}

async fn a_poll_that_is_late_and_an_end_that_is_seen_are_counted(era: Era) {
    let config = Config::always().section("admin", "listen = \"127.0.0.1:0\"");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let task = client.call("echo", json!({})).await.into_task();
    client.until(&task, "completed").await;
    client.get(&task).await;
    let seen = "raincheck_poll_lateness_seconds_count";
    assert_eq!(sample(&rig, seen).await, Some(1.0));
    assert_eq!(sample(&rig, "raincheck_task_polls_count").await, Some(1.0));
    let polls = sample(&rig, "raincheck_task_polls_sum").await;
    assert!(polls.is_some_and(|polls| polls >= 1.0), "{polls:?}");
}

async fn nobody_writes_a_line_of_the_log(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let name = "look\n2026-01-01T00:00:00Z ERROR raincheck: forged\x1b[2J";
    let encoded =
        "=?base64?bG9vawoyMDI2LTAxLTAxVDAwOjAwOjAwWiBFUlJPUiByYWluY2hlY2s6IGZvcmdlZBtbMko=?=";
    let request = rig
        .client()
        .request("tools/call", json!({"name": name, "arguments": {}}));
    request.header("mcp-name", encoded).send().await.into_task();
    rig.proxy.until_said("task ended", 1).await;
    let log = rig.proxy.log();
    assert!(log.contains(r"tool=look\n2026"), "{log}");
    let is_forged = |line: &str| line.starts_with("2026-01-01") || line.contains('\x1b');
    assert!(!log.lines().any(is_forged), "{log}");
}

#[tokio::test]
async fn the_first_line_says_what_starts_and_the_next_what_is_probably_not_meant() {
    let config = Config::never()
        .tool("*", "mode = \"always\"")
        .tool("deploy", "mode = \"never\"");
    let rig = Rig::start(Era::Modern, config).await;
    let log = rig.proxy.log();
    let mut lines = log.lines();
    let first = lines.next().unwrap();
    assert!(first.contains(" starting "), "{first}");
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    for field in [
        &*version,
        "raincheck.toml",
        "upstream=http://",
        "store=memory",
        "replica=",
    ] {
        assert!(first.contains(field), "{field}: {first}");
    }
    assert!(!first.contains("namespace"), "a file has none: {first}");
    let second = lines.next().unwrap();
    let said = "[[tools]] #2 never applies: [[tools]] #1 matches all of its tools and comes first";
    assert!(second.contains(said), "{second}");
}

#[tokio::test]
async fn a_wrong_path_is_answered_with_the_right_one() {
    let config = Config::always().section("telemetry", "log = \"debug\"");
    let rig = Rig::start(Era::Modern, config).await;
    for path in ["/", "/mcp//", "/sse", "/.well-known/openid-configuration"] {
        let answer = rig.client().http(Method::POST, path).send().await;
        assert_eq!(answer.refusal(), (404, -32600));
        assert!(
            answer.body.contains("MCP is served at /mcp"),
            "{}",
            answer.body
        );
    }
    let log = rig.proxy.log();
    let told = log.matches("clients write the path of listen.path").count();
    assert_eq!(told, 1, "{log}");
    assert_eq!(
        log.matches("refused for its path method").count(),
        4,
        "{log}"
    );
}

#[tokio::test]
async fn each_refused_request_has_its_reason_at_debug() {
    let config = Config::always().section("telemetry", "log = \"debug\"");
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    let unread = client.post("no json");
    unread
        .header("mcp-protocol-version", "2026-07-28")
        .send()
        .await;
    client.asking("tasks/get", &Task::by_id("x")).send().await;
    let log = rig.proxy.log();
    assert!(log.contains("a request was refused status=400"), "{log}");
    assert!(log.contains("answered with an error code=-32602"), "{log}");
}

#[tokio::test]
async fn what_a_program_prints_is_quoted() {
    for word in ["modern", "legacy"] {
        let proxy = Config::never().run(word).await;
        let client = Client::of(proxy.address());
        client.call("garbage", json!({})).await.into_result();
        let said = "what is no message to its standard output";
        proxy.until_said(said, 3).await;
        let log = proxy.log();
        assert!(log.contains("Listening on port 80"), "{log}");
        assert!(!log.contains("{\"id\":"), "a part of a message: {log}");
    }
}

#[tokio::test]
async fn two_living_replicas_of_one_name_are_told_of() {
    let redis = RedisServer::start();
    let config = Config::always()
        .redis(&redis.url())
        .section("replica", "id = \"web-0\"\nlease = \"3s\"");
    let one = Rig::start(Era::Modern, config.clone()).await;
    let other = config.start(&one.upstream.url()).await;
    for proxy in [&one.proxy, &other] {
        let said = "another process with this replica.id is alive";
        proxy.until_said(said, 1).await;
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_at_the_start_is_told_of() {
    let proxy = Config::always().start("http://127.0.0.1:1/mcp").await;
    eventually(PATIENCE, "the log speaks of the server", async || {
        let log = proxy.log();
        let is_told = log.contains("the server cannot be reached; calls fail until it can");
        is_told.then_some(()).ok_or(log)
    })
    .await;
}
