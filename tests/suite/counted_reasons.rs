//! Each reason why raincheck itself ends a task has a count that rises. The scenarios are named after their reasons.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::{Value, json};

use crate::counted::{LIMITS, until_at};
use crate::held_replicas::allow_bytes;
use crate::redis_server::RedisServer;
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::session::{NEWEST, Session};
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Rig, Upstream, eventually};

/// A test for each scenario, which is told its name, and the list of them.
macro_rules! counted {
    ($($reason:ident),* $(,)?) => {
        mod is_counted {
            $(#[tokio::test]
            async fn $reason() {
                super::$reason(stringify!($reason)).await;
            })*
        }
        const COUNTED: &[&str] = &[$(stringify!($reason)),*];
    };
}

counted!(
    upstream_unreachable,
    upstream_unauthorized,
    upstream_http,
    upstream_reset,
    upstream_invalid,
    upstream_too_large,
    upstream_too_deep,
    deadline,
    answer_refused,
    job_lost,
    owner_lost,
    shutdown,
    store_lost,
);

/// The reasons that end no task: the call is refused, and the limit that refused it is counted.
const NO_END_OF_A_TASK: [(&str, &str); 5] = [
    ("busy", "limits.calls"),
    ("queue_full", "queue"),
    ("paused", "paused"),
    ("sessions_in_use", "upstream.sessions_max"),
    ("quota", "limits.tasks"),
];

/// docs/errors.md has every reason: a test makes its table from the code.
#[test]
fn each_reason_has_a_test_or_ends_no_task() {
    let page = include_str!("../../docs/errors.md");
    let (_, table) = page.split_once("| `io.raincheck/reason` |").unwrap();
    let (table, _) = table.split_once("<!-- end -->").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    let known = NO_END_OF_A_TASK.iter().map(|(reason, _)| reason);
    let known: BTreeSet<_> = known.chain(COUNTED).copied().collect();
    assert_eq!(listed, known);
    assert_eq!(known.len(), COUNTED.len() + NO_END_OF_A_TASK.len());
    for (reason, limit) in NO_END_OF_A_TASK {
        assert!(LIMITS.iter().any(|(known, _)| *known == limit), "{reason}");
    }
}

async fn counted_at(proxy: &Proxy, tool: &str, reason: &str, effect: &str) {
    let labels =
        format!("effect=\"{effect}\",outcome=\"failed\",reason=\"{reason}\",tool=\"{tool}\"");
    until_at(
        proxy,
        &format!("raincheck_tasks_ended_total{{{labels}}}"),
        1.0,
    )
    .await;
}

/// Calls the tool of a modern server to which something happens, and looks at the count. The era of the server is known
/// before.
async fn fails(
    reason: &str,
    effect: &str,
    terms: &str,
    (tool, arguments): (&str, Value),
    happens: impl FnOnce(&Upstream),
) {
    let rig = Rig::start(Era::Modern, with_operators(Config::always().terms(terms))).await;
    let client = rig.client();
    let first = client.call("slow", json!({})).await.into_task();
    client.until(&first, "completed").await;
    happens(&rig.upstream);
    let task = client.call(tool, arguments).await.into_task();
    client.until(&task, "failed").await;
    counted_at(&rig.proxy, tool, reason, effect).await;
}

async fn job_lost(reason: &str) {
    let upstream = Upstream::with_jobs(Era::Modern).await;
    upstream.job_is("a", Value::Null);
    let rule = "start = \"job_start\"\nstatus = \"job_status\"\n\
        poll = { first = \"500ms\", max = \"500ms\", lost_after = \"1s\" }";
    let config = with_operators(Config::always()).section("[jobs]", rule);
    let proxy = config.start(&upstream.url()).await;
    let client = Client::of(proxy.address());
    let task = client.call("job_start", json!({})).await.into_task();
    client.until(&task, "failed").await;
    counted_at(&proxy, "job_start", reason, "unknown").await;
}

async fn upstream_unreachable(reason: &str) {
    let Rig { proxy, upstream } = Rig::start(Era::Modern, with_operators(Config::always())).await;
    let client = Client::of(proxy.address());
    let task = client.call("slow", json!({})).await.into_task();
    client.until(&task, "completed").await;
    drop(upstream);
    // Until no connection is left that could break under a call, which is another reason.
    let failed = async || {
        let task = client.call("echo", json!({})).await.into_task();
        let state = client.until(&task, "failed").await;
        let unreachable = state["error"]["data"]["io.raincheck/reason"] == reason;
        unreachable.then_some(()).ok_or(state)
    };
    eventually(PATIENCE, "the server cannot be reached", failed).await;
    counted_at(&proxy, "echo", reason, "none").await;
}

async fn upstream_unauthorized(reason: &str) {
    fails(reason, "none", "", ("echo", json!({})), Upstream::challenge).await;
}

async fn upstream_http(reason: &str) {
    for (effect, status) in [("none", 400), ("unknown", 500)] {
        let refuse = |server: &Upstream| server.end_calls_with(status);
        fails(reason, effect, "", ("echo", json!({})), refuse).await;
    }
}

async fn upstream_reset(reason: &str) {
    let call = ("steps", json!({"then": "break"}));
    let release = |server: &Upstream| server.release("steps");
    fails(reason, "unknown", "", call, release).await;
}

async fn upstream_invalid(reason: &str) {
    let call = ("verbatim", json!({"result": "7"}));
    fails(reason, "unknown", "", call, |_| {}).await;
}

async fn upstream_too_large(reason: &str) {
    let terms = "result_bytes_max = \"64KiB\"";
    let call = ("big", json!({"bytes": 1 << 20}));
    fails(reason, "unknown", terms, call, |_| {}).await;
}

async fn upstream_too_deep(reason: &str) {
    let result = "[".repeat(5000) + &"]".repeat(5000);
    let call = ("verbatim", json!({"result": result}));
    fails(reason, "unknown", "", call, |_| {}).await;
}

async fn deadline(reason: &str) {
    let terms = "max_duration = \"1s\"";
    fails(reason, "unknown", terms, ("never", json!({})), |_| {}).await;
}

/// A server of 2026-07-28 takes results only as answers, and this client of 2025-11-25 answers with an error.
async fn answer_refused(reason: &str) {
    let rig = Rig::start(Era::Modern, with_operators(Config::always())).await;
    let session = Session::declaring(rig.client(), NEWEST, json!({"sampling": {}})).await;
    let params = json!({"name": "sample", "arguments": {}, "task": {}});
    let created = session.request("call", "tools/call", params).send().await;
    let created = created.into_result();
    let task = json!({"taskId": created["task"]["taskId"]});
    let waiting = session.request("result", "tasks/result", task);
    let mut waiting = waiting.stream().await;
    let question = waiting.next_of("sampling/createMessage").await;
    let refusal =
        json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}});
    assert_eq!(session.post(&refusal).send().await.status, 202);
    counted_at(&rig.proxy, "sample", reason, "unknown").await;
}

async fn owner_lost(reason: &str) {
    let mut pair = Pair::with(Era::Modern, "", |config| {
        with_operators(config.section("upstream", "shared = false"))
    })
    .await;
    pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    pair.a.kill();
    counted_at(&pair.b, "held", reason, "unknown").await;
}

/// The listener for operators answers until the process ends, and this process is not asked to.
async fn shutdown(reason: &str) {
    let config = with_operators(Config::always()).section("drain", "grace = \"3s\"");
    let rig = Rig::start(Era::Modern, config).await;
    rig.client().call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    let operators = Client::of(rig.proxy.operators().await);
    operators.http(Method::POST, "/drain").send().await;
    counted_at(&rig.proxy, "never", reason, "unknown").await;
}

/// The store is full for longer than an answer is kept in memory: half a minute.
async fn store_lost(reason: &str) {
    let redis = RedisServer::start();
    let config = with_operators(Config::always().redis(&redis.url()));
    let rig = Rig::start(Era::Modern, config).await;
    rig.client().call("held", json!({})).await.into_task();
    rig.upstream.until_started("held").await;
    allow_bytes(&redis, 1);
    rig.upstream.release("held");
    let dropped = "a result is dropped, because the store stayed full";
    eventually(PATIENCE * 4, dropped, async || {
        let log = rig.proxy.log();
        let is_said = log.contains(dropped);
        is_said.then_some(()).ok_or(log)
    })
    .await;
    allow_bytes(&redis, 0);
    counted_at(&rig.proxy, "held", reason, "unknown").await;
}
