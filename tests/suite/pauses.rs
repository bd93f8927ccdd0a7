//! Tools that operators pause: new calls wait or are refused, on every replica, until the pause ends.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::counted::until_at;
use crate::operators_tasks::post;
use crate::support::client::{Answer, Task};
use crate::support::operator::{raincheck, with_operators};
use crate::support::pair::Pair;
use crate::support::session::{NEWEST, Session};
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Rig, eventually, in_both_eras};

in_both_eras!(
    a_pause_holds_on_every_replica_until_it_is_ended,
    a_pause_ends_by_itself_and_outlives_a_restart,
    calls_of_a_paused_tool_wait_in_its_queue,
    a_call_that_waits_already_waits_for_the_end_of_the_pause,
    a_call_that_would_pass_is_refused,
);

async fn paused(proxy: &Proxy) -> Value {
    let operators = Client::of(proxy.operators().await);
    operators
        .page("/tools")
        .await
        .of_status(200)
        .unwrap()
        .json()["paused"]
        .clone()
}

/// Pauses tools through this replica.
async fn pause(proxy: &Proxy, tools: &str, seconds: u64) {
    let operators = Client::of(proxy.operators().await);
    let body = json!({"tools": tools, "seconds": seconds, "reason": "the disk is full"});
    let answer = post(&operators, "/tools/pause", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Waits until so many pauses are in force here.
async fn until_paused(proxy: &Proxy, count: usize) {
    eventually(PATIENCE, "the pauses are in force", async || {
        let paused = paused(proxy).await;
        let is_so = paused.as_array().unwrap().len() == count;
        if is_so { Ok(()) } else { Err(paused) }
    })
    .await;
}

#[track_caller]
fn assert_paused(answer: &Answer) {
    assert_eq!(answer.refusal(), (200, -32603), "{}", answer.body);
    let error = &answer.json()["error"];
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("An operator has paused this tool: until 20"),
        "{message}"
    );
    assert!(
        message.contains("(the disk is full); it did not run"),
        "{message}"
    );
    assert_eq!(error["data"]["io.raincheck/reason"], "paused", "{error}");
    assert_eq!(error["data"]["io.raincheck/effect"], "none", "{error}");
    assert!(error["data"]["io.raincheck/until"].is_string(), "{error}");
}

async fn echo(client: &Client) -> Answer {
    client.call("echo", json!({"text": "x"})).await
}

async fn completes(client: &Client, task: Task) {
    client.until(&task, "completed").await;
}

async fn a_pause_holds_on_every_replica_until_it_is_ended(era: Era) {
    let pair = Pair::with(era, "", with_operators).await;
    let (a, b) = (pair.at_a(), pair.at_b());
    let running = a.call("held", json!({"nonce": "n"})).await.into_task();
    pair.upstream.until_started("n").await;

    pause(&pair.b, "[eh]*", 3600).await;
    until_paused(&pair.a, 1).await;
    for client in [&a, &b, &a.clone().without_tasks()] {
        assert_paused(&echo(client).await);
    }
    let other = b.call("fail", json!({"nonce": "o"})).await.into_task();
    completes(&b, other).await;
    // A call that runs goes on.
    pair.upstream.release("n");
    completes(&a, running).await;
    let late = pair.another("c").await;
    assert_paused(&echo(&Client::of(late.address())).await);

    let resumed = raincheck(&pair.a, &["tools", "resume", "[eh]*"]).await;
    assert!(resumed.status.success(), "{resumed:?}");
    for proxy in [&pair.a, &pair.b, &late] {
        until_paused(proxy, 0).await;
        let client = Client::of(proxy.address());
        completes(&client, echo(&client).await.into_task()).await;
    }
    assert_eq!(pair.upstream.tally("echo").started, 3);
    assert!(
        pair.b.log().contains("action=\"pause\""),
        "{}",
        pair.b.log()
    );
    assert!(
        pair.a.log().contains("action=\"resume\""),
        "{}",
        pair.a.log()
    );
}

async fn a_pause_ends_by_itself_and_outlives_a_restart(era: Era) {
    let mut rig = Rig::start(era, with_operators(Config::always()).embedded()).await;
    let began = Instant::now();
    pause(&rig.proxy, "echo", 4).await;
    rig.proxy.kill();
    rig.proxy.restart().await;
    let client = rig.client();
    assert_paused(&echo(&client).await);
    let task = eventually(PATIENCE, "the pause is over", async || {
        let answer = echo(&client).await;
        let is_over = answer.json()["error"].is_null();
        if is_over {
            Ok(answer.into_task())
        } else {
            Err(answer.body)
        }
    })
    .await;
    assert!(began.elapsed() >= Duration::from_secs(4));
    completes(&client, task).await;
    rig.proxy.until_said("a pause of tools is over", 1).await;
}

async fn calls_of_a_paused_tool_wait_in_its_queue(era: Era) {
    let config = with_operators(Config::always()).tool("echo", "concurrency = 1\nqueue = 2");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let words = [
        "tools",
        "pause",
        "echo",
        "--for",
        "30m",
        "--reason",
        "the disk is full",
    ];
    let said = raincheck(&rig.proxy, &words).await;
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.starts_with("echo: paused until 20"), "{said}");
    assert!(said.ends_with(" from now: the disk is full\n"), "{said}");

    let first = echo(&client).await.into_task();
    let second = echo(&client).await.into_task();
    assert_paused(&echo(&client).await);
    until_at(
        &rig.proxy,
        "raincheck_refusals_total{limit=\"paused\"}",
        1.0,
    )
    .await;
    until_at(&rig.proxy, "raincheck_pauses", 1.0).await;
    let state = client.get(&first).await;
    let message = state["statusMessage"].as_str().unwrap();
    assert!(
        message.starts_with("The tool is paused until 20"),
        "{state}"
    );
    assert_eq!(rig.upstream.tally("echo").started, 0);

    let said = raincheck(&rig.proxy, &["tools", "resume", "echo"]).await;
    assert_eq!(said.stdout, b"nothing is paused\n");
    completes(&client, first).await;
    completes(&client, second).await;
    let again = raincheck(&rig.proxy, &["tools", "resume", "echo"]).await;
    assert_eq!(again.status.code(), Some(1));
    until_at(&rig.proxy, "raincheck_pauses", 0.0).await;
}

/// The disk is full: what waits already must not go out either.
async fn a_call_that_waits_already_waits_for_the_end_of_the_pause(era: Era) {
    let config = with_operators(Config::always()).section("upstream", "concurrency = 1");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let running = client.call("held", json!({"nonce": "n"})).await.into_task();
    rig.upstream.until_started("n").await;
    let waits = echo(&client).await.into_task();
    pause(&rig.proxy, "echo", 3600).await;
    let other = client.call("fail", json!({"nonce": "o"})).await.into_task();
    rig.upstream.release("n");
    completes(&client, running).await;
    completes(&client, other).await;
    let state = client.get(&waits).await;
    assert_eq!(state["status"], "working", "{state}");
    assert_eq!(rig.upstream.tally("echo").started, 0);
    // The queue of the server is for all tools.
    assert_paused(&echo(&client).await);
    let said = raincheck(&rig.proxy, &["tools", "resume", "echo"]).await;
    assert!(said.status.success(), "{said:?}");
    completes(&client, waits).await;
}

async fn a_call_that_would_pass_is_refused(era: Era) {
    let rig = Rig::start(era, with_operators(Config::never())).await;
    let client = rig.client().without_tasks();
    let session = match era {
        Era::Legacy => Some(Session::open(rig.client(), NEWEST).await),
        Era::Modern => None,
    };
    let ask = async |id: u32| match &session {
        Some(session) => {
            session
                .calling(id, "echo", json!({"text": "x"}))
                .send()
                .await
        }
        None => echo(&client).await,
    };
    assert!(ask(1).await.body.contains("\"x\""));
    pause(&rig.proxy, "echo", 3600).await;
    assert_paused(&ask(2).await);
    assert_eq!(rig.upstream.tally("echo").started, 1);
    let said = raincheck(&rig.proxy, &["tools", "resume", "echo"]).await;
    assert!(said.status.success(), "{said:?}");
    assert!(ask(3).await.body.contains("\"x\""));
}
