//! A poll of a client that knows the state of its task waits for a change: `tasks.poll_hold`.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use crate::operators_log::sample;
use crate::stdio_front::{Launched, modern};
use crate::support::client::Task;
use crate::support::pair::Pair;
use crate::support::session::{NEWEST, Session};
use crate::support::shape::assert_state;
use crate::support::{
    Client, Config, Era, PATIENCE, Proxy, Rig, Upstream, eventually, in_both_eras, within,
};

in_both_eras!(
    a_poll_is_answered_when_the_task_ends,
    a_poll_is_answered_when_the_server_asks,
    a_poll_without_news_is_answered_after_the_hold,
    a_poll_is_answered_at_once_when_a_drain_begins,
    a_client_that_goes_away_gives_its_place_back,
    a_store_that_goes_away_meanwhile_is_said_to_be_away,
    a_change_at_another_replica_answers_the_poll,
    many_polls_of_one_connection_leave_room_for_others,
);

/// Longer than any test waits for anything.
const LONG: &str = "50s";

fn config() -> Config {
    Config::always()
        .poll_hold(LONG)
        .section("admin", "listen = \"127.0.0.1:0\"")
}

async fn held_task(client: &Client, nonce: &str) -> Task {
    let held = client.call("held", json!({"nonce": nonce})).await;
    held.into_task()
}

/// A poll that is under way.
fn polling(client: &Client, task: &Task) -> tokio::task::JoinHandle<Value> {
    let (client, task) = (client.clone(), Task::by_id(&*task.id));
    tokio::spawn(async move { client.get(&task).await })
}

async fn answer(polling: tokio::task::JoinHandle<Value>) -> Value {
    within(PATIENCE, "the poll is answered", polling)
        .await
        .unwrap()
}

async fn until_held(rig: &Rig, polls: u32) {
    until_held_at(&rig.proxy, polls).await;
}

async fn a_poll_is_answered_when_the_task_ends(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client();
    let task = held_task(&client, "a").await;
    // The first poll: the client knows from the call that the task works.
    let poll = polling(&client, &task);
    until_held(&rig, 1).await;
    rig.upstream.release("a");
    assert_state(&answer(poll).await, "completed");
    until_held(&rig, 0).await;
    // What has ended is told at once, as often as a client asks.
    assert_state(&answer(polling(&client, &task)).await, "completed");
    let late = "raincheck_poll_lateness_seconds_count";
    assert_eq!(sample(&rig, late).await, Some(1.0));
    let polls = "raincheck_task_polls_sum";
    assert_eq!(sample(&rig, polls).await, Some(1.0), "one poll saw the end");
}

async fn a_poll_is_answered_when_the_server_asks(era: Era) {
    let rig = Rig::start(era, config()).await;
    let client = rig.client();
    let asks_later = json!({"n": 0, "then": "ask"});
    let task = client.call("steps", asks_later).await.into_task();
    let poll = polling(&client, &task);
    until_held(&rig, 1).await;
    rig.upstream.release("steps");
    let asks = answer(poll).await;
    assert_state(&asks, "input_required");
    // A client that asks again wants to see the question again.
    let again = answer(polling(&client, &task)).await;
    assert_eq!(again["inputRequests"], asks["inputRequests"]);
    let keys: Vec<&String> = asks["inputRequests"].as_object().unwrap().keys().collect();
    let reply = json!({keys[0]: {"action": "accept", "content": {"name": "Ada"}}});
    client.update(&task, reply).await.assert_acknowledged();
    client.until(&task, "completed").await;
}

async fn a_poll_without_news_is_answered_after_the_hold(era: Era) {
    let rig = Rig::start(era, config().poll_hold("300ms")).await;
    let client = rig.client();
    let task = held_task(&client, "a").await;
    let from = Instant::now();
    assert_state(&client.get(&task).await, "working");
    assert!(
        from.elapsed() >= Duration::from_millis(300),
        "{:?}",
        from.elapsed()
    );
}

async fn a_poll_is_answered_at_once_when_a_drain_begins(era: Era) {
    let mut rig = Rig::start(era, config()).await;
    let client = rig.client();
    let task = held_task(&client, "a").await;
    let poll = polling(&client, &task);
    until_held(&rig, 1).await;
    rig.proxy.terminate();
    assert_state(&answer(poll).await, "working");
    rig.upstream.release("a");
    assert!(rig.proxy.ended().await.success());
}

async fn a_client_that_goes_away_gives_its_place_back(era: Era) {
    let config = config().section("limits", "held_polls = 1");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let (one, other) = (held_task(&client, "a").await, held_task(&client, "b").await);
    let poll = polling(&client, &one);
    until_held(&rig, 1).await;
    // No place is left: this one is answered at once.
    assert_state(&answer(polling(&client, &other)).await, "working");
    poll.abort();
    until_held(&rig, 0).await;
    let poll = polling(&client, &other);
    until_held(&rig, 1).await;
    rig.upstream.release("b");
    assert_state(&answer(poll).await, "completed");
}

async fn a_store_that_goes_away_meanwhile_is_said_to_be_away(era: Era) {
    let mut redis = crate::redis_server::RedisServer::start();
    let config = config().poll_hold("3s").redis(&redis.url());
    let rig = Rig::start(era, config.store("read_patience = \"500ms\"")).await;
    let client = rig.client();
    let task = held_task(&client, "a").await;
    let poll = {
        let asking = client.asking("tasks/get", &task);
        tokio::spawn(asking.send())
    };
    until_held(&rig, 1).await;
    redis.kill();
    let answer = within(PATIENCE, "the poll ends", poll).await.unwrap();
    assert_eq!(answer.refusal(), (503, -32603), "as a poll in an outage");
}

async fn a_change_at_another_replica_answers_the_poll(era: Era) {
    let more = |config: Config| {
        config
            .poll_hold(LONG)
            .section("upstream", "shared = true")
            .section("admin", "listen = \"127.0.0.1:0\"")
    };
    let pair = Pair::with(era, "", more).await;
    let task = held_task(&pair.at_a(), "a").await;
    // This replica told the client nothing yet.
    assert_state(&answer(polling(&pair.at_b(), &task)).await, "working");
    let poll = polling(&pair.at_b(), &task);
    until_held_at(&pair.b, 1).await;
    pair.upstream.release("a");
    assert_state(&answer(poll).await, "completed");
}

async fn until_held_at(proxy: &Proxy, polls: u32) {
    let operators = Client::of(proxy.operators().await);
    let line = format!("raincheck_polls_held {polls}");
    eventually(PATIENCE, &line, async || {
        let page = operators.page("/metrics").await.body;
        page.lines().any(|it| it == line).then_some(()).ok_or(page)
    })
    .await;
}

async fn many_polls_of_one_connection_leave_room_for_others(era: Era) {
    let rig = Rig::start(era, config().http2()).await;
    let (client, _arrived) = rig.client().over_http2().await;
    let mut polls = Vec::new();
    for _ in 0..64 {
        let task = held_task(&client, "a").await;
        polls.push(polling(&client, &task));
    }
    until_held(&rig, 64).await;
    let further = held_task(&client, "b").await;
    assert_state(&answer(polling(&client, &further)).await, "working");
    // Another connection has places of its own.
    let poll = polling(&rig.client(), &further);
    until_held(&rig, 65).await;
    rig.upstream.release("b");
    assert_state(&answer(poll).await, "completed");
    rig.upstream.release("a");
    for poll in polls {
        assert_state(&answer(poll).await, "completed");
    }
}

/// A browser has six connections for one host over HTTP/1.1, and all of its requests need them.
#[tokio::test]
async fn a_web_page_does_not_wait() {
    let rig = Rig::start(Era::Modern, config()).await;
    let client = rig.client();
    let task = held_task(&client, "a").await;
    let asking = client.asking("tasks/get", &task);
    let page = asking.header("origin", "http://localhost:5173").send();
    let state = within(PATIENCE, "the page is answered", page)
        .await
        .into_result();
    assert_state(&state, "working");
}

#[tokio::test]
async fn a_poll_on_a_line_holds_up_nothing_and_can_be_cancelled() {
    let upstream = Upstream::start(Era::Modern).await;
    let mut client = Launched::with(
        &["--upstream", &upstream.url()],
        &Config::always().poll_hold(LONG),
    );
    let held = modern(json!({"name": "held", "arguments": {"nonce": "a"}}));
    let task = client.request(json!(1), "tools/call", held).await["result"].clone();
    let params = modern(json!({"taskId": task["taskId"]}));
    let poll =
        |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tasks/get", "params": params});
    client.say(poll(2)).await;
    let echo = modern(json!({"name": "echo", "arguments": {"text": "x"}}));
    let other = client.request(json!(3), "tools/call", echo).await;
    assert_eq!(other["result"]["resultType"], "task", "{other}");
    let cancel = json!({"requestId": 2, "_meta": modern(json!({}))["_meta"]});
    client
        .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}))
        .await;
    // The id is free again, and its new request is the one that is answered.
    let again = json!({"name": "echo", "arguments": {"text": "again"}});
    let again = client.request(json!(2), "tools/call", modern(again)).await;
    assert_eq!(again["result"]["resultType"], "task", "{again}");
    client.say(poll(4)).await;
    upstream.release("a");
    let params = modern(json!({"taskId": task["taskId"]}));
    let state = client.request(json!(5), "tasks/get", params).await;
    assert_eq!(state["result"]["status"], "completed");
    client.ended().await;
}

#[tokio::test]
async fn a_poll_of_2025_waits_and_can_be_cancelled() {
    let rig = Rig::start(Era::Legacy, config()).await;
    let session = Session::open(rig.client(), NEWEST).await;
    let call = json!({"name": "held", "arguments": {"nonce": "a"}, "task": {}});
    let made = session
        .request(1, "tools/call", call)
        .send()
        .await
        .into_result();
    let params = json!({"taskId": made["task"]["taskId"]});
    let poll = |id: u64| {
        let asking = session.request(id, "tasks/get", params.clone());
        tokio::spawn(asking.send())
    };
    let cancelled = poll(2);
    until_held(&rig, 1).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    session.post(&cancel).send().await;
    until_held(&rig, 0).await;
    cancelled.abort();
    let poll = poll(3);
    until_held(&rig, 1).await;
    rig.upstream.release("a");
    let state = within(PATIENCE, "the poll is answered", poll)
        .await
        .unwrap();
    assert_eq!(state.into_result()["status"], "completed");
    assert_eq!(session.http(Method::DELETE).send().await.status / 100, 2);
}
