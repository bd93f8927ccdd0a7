//! A server that raincheck runs itself: tasks in front of it, and processes that end.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::process::until_gone;
use crate::support::client::Client;
use crate::support::shape::assert_state;
use crate::support::{Config, Era, PATIENCE, Proxy, eventually, in_both_eras};

in_both_eras!(
    a_call_is_a_task,
    a_quick_call_is_no_task,
    progress_is_seen_in_the_task,
    a_held_call_streams_its_progress,
    a_question_waits_in_the_task,
    a_cancelled_task_is_cancelled_at_the_server,
    a_process_that_one_caller_is_done_with_makes_room_for_another,
    a_caller_that_has_left_gets_no_process,
    a_dead_process_fails_its_task_and_the_next_call_has_another,
    changes_of_the_server_are_heard,
    no_process_outlives_a_kill,
    no_process_outlives_a_drain,
);

/// Every call a task but those that look or help.
async fn proxy(era: Era) -> Proxy {
    proxy_with(era, "").await
}

async fn proxy_with(era: Era, upstream: &str) -> Proxy {
    config().run_with(mode(era), upstream).await
}

fn config() -> Config {
    let plain = "{release,seen,pid,echo,changed,orphan}";
    Config::always().tool(plain, "mode = \"never\"")
}

fn mode(era: Era) -> &'static str {
    match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

async fn plain(client: &Client, tool: &str, arguments: Value) -> String {
    client.call(tool, arguments).await.into_text()
}

async fn release(client: &Client) {
    let released = plain(client, "release", json!({"nonces": ["a"]})).await;
    assert_eq!(released, "released");
}

/// What the program has read.
async fn seen(client: &Client) -> Vec<Value> {
    serde_json::from_str(&plain(client, "seen", json!({})).await).unwrap()
}

async fn pid(client: &Client) -> u32 {
    plain(client, "pid", json!({})).await.parse().unwrap()
}

async fn gone(pid: u32) {
    until_gone(PATIENCE, pid).await;
}

async fn a_call_is_a_task(era: Era) {
    let proxy = proxy(era).await;
    let client = Client::of(proxy.address());
    let task = client.call("hold", json!({"nonce": "a"})).await.into_task();
    assert_state(&client.get(&task).await, "working");
    release(&client).await;
    let state = client.until(&task, "completed").await;
    assert_state(&state, "completed");
    assert_eq!(state["result"]["content"][0]["text"], "a");
}

async fn a_quick_call_is_no_task(era: Era) {
    let mode = match era {
        Era::Legacy => "legacy",
        Era::Modern => "dual",
    };
    let proxy = Config::auto("10s").run(mode).await;
    let client = Client::of(proxy.address());
    assert_eq!(plain(&client, "echo", json!({"text": "x"})).await, "x");
    let listed = client.request("tools/list", json!({})).send().await;
    let listed = listed.into_result();
    assert!(listed["tools"].as_array().unwrap().len() > 10);
    assert_eq!(listed["resultType"], "complete");
    let discovered = client.request("server/discover", json!({})).send().await;
    let discovered = discovered.into_result();
    let info = &discovered["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "stdio-fixture");
}

async fn progress_is_seen_in_the_task(era: Era) {
    let proxy = proxy(era).await;
    let client = Client::of(proxy.address());
    let call = client.call("progress", json!({"nonce": "a"})).await;
    let task = call.into_task();
    let shown = |state: &Value| state["statusMessage"] == "3 of 3";
    client.until_it(&task, "at its third step", shown).await;
    release(&client).await;
    client.until(&task, "completed").await;
}

async fn a_held_call_streams_its_progress(era: Era) {
    let proxy = proxy(era).await;
    let client = Client::of(proxy.address()).without_tasks();
    let call = client.calling("progress", json!({}));
    let call = call.edit(|message| message["params"]["_meta"]["progressToken"] = json!("mine"));
    let mut stream = call.stream().await;
    for step in [1, 3] {
        let heard = stream.next_of("notifications/progress").await;
        assert_eq!(heard["params"]["progressToken"], "mine");
        assert_eq!(heard["params"]["progress"], step);
    }
    let answer = stream.next().await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
}

async fn a_question_waits_in_the_task(era: Era) {
    let proxy = proxy(era).await;
    let client = Client::of(proxy.address());
    let (tool, said) = match era {
        Era::Legacy => ("ask", "Ada"),
        Era::Modern => ("input", "Ada!"),
    };
    let task = client.call(tool, json!({})).await.into_task();
    let state = client.until(&task, "input_required").await;
    assert_state(&state, "input_required");
    let asked = state["inputRequests"].as_object().unwrap();
    assert_eq!(asked.len(), 1);
    let key = asked.keys().next().unwrap();
    assert_eq!(asked[key]["params"]["message"], "Your name?");
    let answer = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
    client.update(&task, answer).await.assert_acknowledged();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], said);
}

async fn a_cancelled_task_is_cancelled_at_the_server(era: Era) {
    // Where there may be more, what comes after a cancel has another process.
    let proxy = proxy_with(era, "children_max = 1").await;
    let client = Client::of(proxy.address());
    let task = client.call("hold", json!({"nonce": "a"})).await.into_task();
    // What was not sent yet needs no cancel.
    until_held(&client).await;
    client.cancel(&task).await.assert_acknowledged();
    client.until(&task, "cancelled").await;
    let told = async || {
        let seen = seen(&client).await;
        let hold = seen.iter().find(|m| m["params"]["name"] == "hold");
        let cancelled = seen
            .iter()
            .find(|m| m["method"] == "notifications/cancelled");
        let cancelled = cancelled.ok_or_else(|| json!(seen))?;
        assert_eq!(cancelled["params"]["requestId"], hold.unwrap()["id"]);
        Ok::<_, Value>(())
    };
    eventually(Duration::from_secs(2), "the server is told", told).await;
}

async fn until_held(client: &Client) {
    eventually(PATIENCE, "the server has it", async || {
        let seen = seen(client).await;
        let hold = seen.iter().any(|m| m["params"]["name"] == "hold");
        hold.then_some(()).ok_or_else(|| json!(seen))
    })
    .await;
}

/// Each caller has a process of its own, and there may be one.
async fn a_process_that_one_caller_is_done_with_makes_room_for_another(era: Era) {
    let proxy = proxy_with(era, "children_max = 1").await;
    let [alice, bob] = ["alice", "bob"].map(|who| Client::of(proxy.address()).named(who));
    let hold = async |client: &Client| client.call("hold", json!({"nonce": "a"})).await;
    let hers = hold(&alice).await.into_task();
    until_held(&alice).await;
    let his = hold(&bob).await.into_task();
    release(&alice).await;
    alice.until(&hers, "completed").await;
    release(&bob).await;
    bob.until(&his, "completed").await;
}

async fn a_caller_that_has_left_gets_no_process(era: Era) {
    let config = config().section("telemetry", "log = \"debug\"");
    let proxy = config.run_with(mode(era), "children_max = 1").await;
    let client = |who: &str| Client::of(proxy.address()).named(who);
    let hold = |client: &Client| client.calling("hold", json!({"nonce": "a"}));
    let alice = client("alice");
    let hers = hold(&alice).send().await.into_task();
    until_held(&alice).await;
    let started = || {
        proxy
            .log()
            .matches("a process of the server was started")
            .count()
    };
    let before = started();
    let leaving = ["b", "c", "d", "e", "f", "g"].map(async |who| {
        let hung_up = hold(&client(who)).or_hang_up_after(Duration::from_millis(300));
        assert!(hung_up.await.is_none(), "there is room for nobody");
    });
    join_all(leaving).await;
    let bob = client("bob");
    let (his, ()) = tokio::join!(hold(&bob).send(), release(&alice));
    alice.until(&hers, "completed").await;
    release(&bob).await;
    bob.until(&his.into_task(), "completed").await;
    assert_eq!(started() - before, 1, "{}", proxy.log());
}

async fn a_dead_process_fails_its_task_and_the_next_call_has_another(era: Era) {
    let proxy = proxy(era).await;
    let client = Client::of(proxy.address());
    for tool in ["exit", "segv", "unfinished", "close_stdout"] {
        let before = pid(&client).await;
        let task = client.call(tool, json!({})).await.into_task();
        let state = client.until(&task, "failed").await;
        assert_state(&state, "failed");
        let data = &state["error"]["data"];
        assert_eq!(data["io.raincheck/reason"], "upstream_reset", "{state}");
        assert_eq!(data["io.raincheck/effect"], "unknown");
        assert_ne!(pid(&client).await, before);
        gone(before).await;
    }
}

async fn changes_of_the_server_are_heard(era: Era) {
    let proxy = proxy(era).await;
    let client = Client::of(proxy.address());
    let listening = client.listening(json!({"toolsListChanged": true}));
    let mut stream = listening.stream().await;
    let first = stream.next().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"]["toolsListChanged"], true);
    plain(&client, "changed", json!({})).await;
    stream.next_of("notifications/tools/list_changed").await;
}

async fn no_process_outlives_a_kill(era: Era) {
    let mut proxy = proxy(era).await;
    let clients = [
        Client::of(proxy.address()),
        Client::of(proxy.address()).named("Bearer b"),
    ];
    let mut processes = Vec::new();
    for client in &clients {
        processes.push(pid(client).await);
        client.call("hold", json!({"nonce": "a"})).await.into_task();
    }
    assert_ne!(processes[0], processes[1]);
    proxy.kill();
    for process in processes {
        gone(process).await;
    }
}

#[tokio::test]
async fn what_the_server_writes_to_standard_error_is_logged_safely() {
    let proxy = Config::never().run("legacy").await;
    let client = Client::of(proxy.address());
    plain(&client, "stderr", json!({"bytes": 10 << 20})).await;
    // Its end says how much was left out.
    client.call("exit", json!({})).await;
    proxy
        .until_said("more to its standard error than is logged", 1)
        .await;
    let log = proxy.log();
    assert!(log.contains("line=\"\\u{1b}[31mxxx"), "{log}");
    assert!(
        !log.contains("\u{1b}[31m"),
        "an escape sequence of the server's"
    );
    assert!(log.len() < 1 << 20, "{} bytes", log.len());
}

/// As `npx` does it: what was started starts the server.
#[tokio::test]
async fn the_server_behind_a_launcher_ends_as_well() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
    let line = format!("python3 {script} legacy; exit 0");
    for drains in [true, false] {
        let command = format!("command = [\"sh\", \"-c\", {line:?}]");
        let config = Config::never().section("upstream", &command);
        let mut proxy = config.start("").await;
        let server = pid(&Client::of(proxy.address())).await;
        if drains {
            assert!(proxy.stop().await.success());
        } else {
            proxy.kill();
        }
        gone(server).await;
    }
}

async fn no_process_outlives_a_drain(era: Era) {
    let mut proxy = proxy(era).await;
    let client = Client::of(proxy.address());
    let process = pid(&client).await;
    let left: u32 = plain(&client, "orphan", json!({})).await.parse().unwrap();
    assert!(proxy.stop().await.success());
    gone(process).await;
    gone(left).await;
}

/// One that ends neither with its input nor when it is asked to.
#[tokio::test]
async fn a_stubborn_process_does_not_outlast_the_grace() {
    let config = Config::never().section("drain", "grace = \"2s\"");
    let mut proxy = config.run("stubborn").await;
    let process = pid(&Client::of(proxy.address())).await;
    let from = Instant::now();
    assert!(proxy.stop().await.success());
    let took = from.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    gone(process).await;
}

/// raincheck takes all that the hard limit allows; what it runs gets what it would have without it.
#[tokio::test]
async fn the_server_has_the_limit_of_open_files_that_raincheck_was_started_with() {
    // One below the hard limit at most, so that there is something to raise.
    let mut limit = getrlimit(Resource::Nofile);
    let below = limit.maximum.map_or(1 << 16, |maximum| maximum - 1);
    limit.current = Some(limit.current.unwrap_or(below).min(below));
    setrlimit(Resource::Nofile, limit).unwrap();
    let proxy = Config::never().run("legacy").await;
    let own = getrlimit_of(proxy.pid());
    let server = getrlimit_of(pid(&Client::of(proxy.address())).await);
    assert_eq!(own.0, own.1, "raincheck's own");
    assert_eq!(server.0, limit.current.unwrap().to_string());
    assert_eq!(server.1, own.1);
}

/// The soft and the hard limit of open files.
fn getrlimit_of(pid: u32) -> (String, String) {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.unwrap().split_whitespace().skip(3).map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}
