//! More calls than the server has sessions or processes for, and a program that starts slowly: tasks wait in their turn,
//! fairly between callers, and none fails because the server is full.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::counted::until_at;
use crate::slow_start::{command, starts};
use crate::support::client::{Client, Task};
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::{Config, Era, Proxy, Rig, TempDir, Upstream, eventually};

/// Many tasks take a while on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const SESSIONS: usize = 4;

fn few_sessions() -> Config {
    let sessions = format!("sessions_max = {SESSIONS}");
    with_operators(Config::always()).section("upstream", &sessions)
}

fn caller(at: &Proxy, name: &str) -> Client {
    Client::of(at.address()).named(format!("Bearer {name}"))
}

/// Has so many tasks made, each of which takes a while at the server.
async fn made(client: &Client, count: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let call = client.call("slow", json!({"ms": 50}));
        tasks.push(call.await.into_task());
    }
    tasks
}

async fn until_all(client: &Client, tasks: &[Task]) {
    for task in tasks {
        eventually(PATIENCE, "the task completes", async || {
            let state = client.get(task).await;
            assert_ne!(state["status"], "failed", "{state}");
            let is_over = state["status"] == "completed";
            is_over.then_some(()).ok_or(state)
        })
        .await;
    }
}

/// More tasks of two callers than there are sessions: all complete.
async fn all_complete(upstream: &Upstream, replicas: &[&Proxy]) {
    let mut tasks = Vec::new();
    for at in replicas {
        for (name, count) in [("alice", 60), ("bob", 10)] {
            let client = caller(at, name);
            let made = made(&client, count).await;
            tasks.push((client, made));
        }
    }
    for (client, made) in &tasks {
        until_all(client, made).await;
    }
    let most = u32::try_from(SESSIONS * replicas.len()).unwrap();
    assert!(upstream.peak() <= most, "{} at once", upstream.peak());
    for at in replicas {
        until_at(at, "raincheck_calls_waiting", 0.0).await;
        let refused = "raincheck_refusals_total{limit=\"upstream.sessions_max\"}";
        until_at(at, refused, 0.0).await;
    }
}

#[tokio::test]
async fn a_full_server_fails_no_task_on_the_embedded_store() {
    let rig = Rig::start(Era::Legacy, few_sessions().embedded()).await;
    all_complete(&rig.upstream, &[&rig.proxy]).await;
}

#[tokio::test]
async fn a_full_server_fails_no_task_of_two_replicas() {
    let upstream = Upstream::start(Era::Legacy).await;
    let pair = Pair::of(upstream, few_sessions()).await;
    all_complete(&pair.upstream, &[&pair.a, &pair.b]).await;
}

async fn held(client: &Client, nonce: &str) -> Task {
    client
        .call("held", json!({"nonce": nonce}))
        .await
        .into_task()
}

fn message(state: &Value) -> &str {
    state["statusMessage"].as_str().unwrap_or_default()
}

/// In the order of arrival within a caller, and in turns between callers. What waits says so, and is at no server.
#[tokio::test]
async fn callers_take_turns_and_a_task_says_its_place() {
    let config = with_operators(Config::always()).section("upstream", "sessions_max = 2");
    let rig = Rig::start(Era::Legacy, config).await;
    let (alice, bob) = (caller(&rig.proxy, "alice"), caller(&rig.proxy, "bob"));
    let mut tasks = Vec::new();
    for nonce in ["a1", "a2", "a3", "a4"] {
        tasks.push(held(&alice, nonce).await);
    }
    let of_bob = held(&bob, "b1").await;
    rig.upstream.until_started("a2").await;
    alice
        .until_it(&tasks[3], "2 calls are before it", |state| {
            message(state).contains("2 calls are before it")
        })
        .await;
    until_at(&rig.proxy, "raincheck_calls_waiting", 3.0).await;
    rig.upstream.release("a1");
    // Bob has no session yet, although his call came last.
    rig.upstream.until_started("b1").await;
    assert_eq!(rig.upstream.tally("a3").started, 0);
    rig.upstream.release("a2");
    rig.upstream.until_started("a3").await;
    assert_eq!(rig.upstream.tally("a4").started, 0);
    for nonce in ["b1", "a3", "a4"] {
        rig.upstream.until_started(nonce).await;
        rig.upstream.release(nonce);
    }
    bob.until(&of_bob, "completed").await;
    for task in &tasks {
        alice.until(task, "completed").await;
    }
}

/// The sessions of a caller that uses none of them are ended for another.
#[tokio::test]
async fn idle_sessions_of_one_caller_keep_nobody_out() {
    let config = Config::always().section("upstream", "sessions_max = 2");
    let rig = Rig::start(Era::Legacy, config).await;
    let (alice, bob) = (caller(&rig.proxy, "alice"), caller(&rig.proxy, "bob"));
    let tasks = [held(&alice, "a1").await, held(&alice, "a2").await];
    for (nonce, task) in ["a1", "a2"].iter().zip(&tasks) {
        rig.upstream.until_started(nonce).await;
        rig.upstream.release(nonce);
        alice.until(task, "completed").await;
    }
    let tasks = [held(&bob, "b1").await, held(&bob, "b2").await];
    for (nonce, task) in ["b1", "b2"].iter().zip(&tasks) {
        rig.upstream.until_started(nonce).await;
        rig.upstream.release(nonce);
        bob.until(task, "completed").await;
    }
}

/// A task that was cancelled while it waited gives its turn to the next.
#[tokio::test]
async fn a_task_that_waits_can_be_cancelled() {
    let config = Config::always().section("upstream", "sessions_max = 1");
    let rig = Rig::start(Era::Legacy, config).await;
    let client = rig.client();
    let (first, second) = (held(&client, "1").await, held(&client, "2").await);
    let third = held(&client, "3").await;
    rig.upstream.until_started("1").await;
    client.cancel(&second).await.assert_acknowledged();
    client.until(&second, "cancelled").await;
    rig.upstream.release("1");
    client.until(&first, "completed").await;
    rig.upstream.until_started("3").await;
    rig.upstream.release("3");
    client.until(&third, "completed").await;
    assert_eq!(rig.upstream.tally("2").started, 0);
}

/// And so a task waits for a process. The process of a caller that does not use it is ended.
#[tokio::test]
async fn a_task_waits_for_a_process() {
    let directory = TempDir::new();
    let upstream = format!("{}\nchildren_max = 1", command(&directory, "legacy", 0.0));
    let config = Config::always().section("upstream", &upstream);
    let proxy = config.start("").await;
    let (alice, bob) = (caller(&proxy, "alice"), caller(&proxy, "bob"));
    let long = alice.call("slow", json!({"ms": 5000})).await.into_task();
    alice
        .until_it(&long, "it is sent", |state| message(state).is_empty())
        .await;
    let waits = bob.call("echo", json!({"text": "x"})).await.into_task();
    let state = bob.get(&waits).await;
    assert!(
        message(&state).starts_with("Waiting for a free place"),
        "{state}"
    );
    bob.until(&waits, "completed").await;
    assert_eq!(alice.get(&long).await["status"], "completed");
}

/// The first call of a client: the task comes after the grace window, whatever the program does, and one start serves all.
#[tokio::test]
async fn a_slow_start_delays_no_task_and_serves_all() {
    for mode in ["legacy", "deaf", "modern", "dual"] {
        let directory = TempDir::new();
        let command = command(&directory, mode, 4.0);
        let config = Config::auto("500ms").section("upstream", &command);
        let proxy = config.start("").await;
        let client = Client::of(proxy.address());
        let from = Instant::now();
        let task = async {
            let task = client.call("echo", json!({"text": "x"})).await.into_task();
            (task, from.elapsed())
        };
        let asked = |method| client.request(method, json!({})).send();
        let ((task, after), tools, ..) = tokio::join!(
            task,
            asked("tools/list"),
            asked("server/discover"),
            asked("tools/list")
        );
        let tools = tools.into_result();
        assert!(after < Duration::from_secs(3), "{mode}: {after:?}");
        assert!(tools["tools"].is_array(), "{mode}: {tools}");
        client.until(&task, "completed").await;
        assert_eq!(starts(directory.path()), 1, "{mode}");
    }
}

#[tokio::test]
async fn a_task_says_that_its_server_is_starting() {
    let directory = TempDir::new();
    let config = Config::always().terms("grace_window = \"100ms\"");
    let config = config.section("upstream", &command(&directory, "legacy", 3.0));
    let proxy = config.start("").await;
    let client = Client::of(proxy.address());
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    assert_eq!(message(&client.get(&task).await), "The server is starting");
    let state = client.until(&task, "completed").await;
    assert!(state.get("statusMessage").is_none(), "{state}");
}
