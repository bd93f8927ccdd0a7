//! The same call again: by a key, or because it is identical.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::redis_server::RedisServer;
use crate::support::client::{Client, Request};
use crate::support::upstream::CHALLENGE;
use crate::support::{Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras, within};

in_both_eras!(
    a_key_runs_once_however_many_come_with_it,
    a_key_stands_for_one_call_of_one_caller,
    what_is_no_key_is_refused,
    the_server_does_not_see_the_key,
    a_task_under_a_key_is_that_task,
    a_client_that_left_comes_back_with_its_key,
    a_question_under_a_key_is_asked_once,
    a_question_under_a_key_is_asked_in_the_task,
    what_did_not_run_may_run_under_its_key,
    what_may_have_run_does_not_run_again,
    a_challenge_reaches_the_client,
    everybody_hears_of_progress_under_a_token_of_its_own,
    nothing_is_sent_that_cannot_be_claimed,
    without_the_rule_each_call_is_its_own,
    an_identical_call_is_attached,
    calls_of_nobody_are_not_attached,
    after_the_window_it_is_another_call,
    a_call_that_nobody_comes_back_for_is_cancelled,
);

const IN_META: &str = "io.raincheck/idempotencyKey";

/// Many clients at once.
const MANY: usize = 8;

const SOON: Duration = Duration::from_secs(5);

fn keyed(client: &Client, tool: &str, arguments: Value, key: &str) -> Request {
    client
        .calling(tool, arguments)
        .header("idempotency-key", key)
}

fn held(client: &Client, key: &str) -> Request {
    keyed(client, "held", json!({}), key)
}

async fn a_key_runs_once_however_many_come_with_it(era: Era) {
    for config in [Config::never(), Config::auto("10s")] {
        let rig = Rig::start(era, config).await;
        let declaring = rig.client();
        let plain = rig.client().without_tasks();
        let arguments = json!({"ms": 50});
        let calls = (0..MANY).map(|number| {
            let client = if number % 2 == 0 { &declaring } else { &plain };
            keyed(client, "slow", arguments.clone(), "k").send()
        });
        for answer in join_all(calls).await {
            assert_eq!(answer.into_text(), "slept");
        }
        let again = keyed(&plain, "slow", arguments.clone(), "k").send().await;
        assert_eq!(again.into_text(), "slept");
        assert_eq!(rig.upstream.tally("slow").started, 1);
        let other = keyed(&plain, "slow", arguments, "l").send().await;
        assert_eq!(other.into_text(), "slept");
        assert_eq!(rig.upstream.tally("slow").started, 2);
    }
}

async fn a_key_stands_for_one_call_of_one_caller(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    let ann = rig.client().named("Bearer ann");
    let echo = |client: &Client, text: &str| keyed(client, "echo", json!({"text": text}), "k");
    assert_eq!(echo(&ann, "a").send().await.into_text(), "a");
    assert_eq!(echo(&ann, "b").send().await.refusal(), (400, -32602));
    let other_tool = keyed(&ann, "fail", json!({"text": "a"}), "k");
    assert_eq!(other_tool.send().await.refusal(), (400, -32602));
    let bob = rig.client().named("Bearer bob");
    assert_eq!(echo(&bob, "b").send().await.into_text(), "b");
    assert_eq!(rig.upstream.tally("echo").started, 2);
    assert_eq!(rig.upstream.tally("fail").started, 0);
}

async fn what_is_no_key_is_refused(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let client = rig.client();
    let in_meta = |key: Value| {
        client.calling("slow", json!({})).edit(|message| {
            message["params"]["_meta"][IN_META] = key;
        })
    };
    let (longest, too_long) = ("x".repeat(255), "x".repeat(256));
    let refused = [
        in_meta(json!(7)),
        in_meta(json!("")),
        in_meta(json!(too_long)),
        in_meta(json!("a")).header("idempotency-key", "b"),
        keyed(&client, "slow", json!({}), ""),
        keyed(&client, "slow", json!({}), "a").also("idempotency-key", "a"),
    ];
    for request in refused {
        assert_eq!(request.send().await.refusal(), (400, -32602));
    }
    assert_eq!(rig.upstream.tally("slow").started, 0);
    let both = in_meta(json!(longest)).header("idempotency-key", &format!("\"{longest}\""));
    for request in [both, in_meta(json!(longest))] {
        assert_eq!(request.send().await.into_text(), "slept");
    }
    assert_eq!(rig.upstream.tally("slow").started, 1);
}

async fn the_server_does_not_see_the_key(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let client = rig.client();
    let call = keyed(&client, "slow", json!({}), "secret-key").edit(|message| {
        message["params"]["_meta"][IN_META] = json!("secret-key");
    });
    assert_eq!(call.send().await.into_text(), "slept");
    let received = rig.upstream.requests("tools/call");
    assert_eq!(received.len(), 1);
    assert!(!received[0].text().contains("secret-key"));
    assert_eq!(received[0].header("idempotency-key"), None);
}

async fn a_task_under_a_key_is_that_task(era: Era) {
    for config in [Config::always(), Config::auto("20ms")] {
        let rig = Rig::start(era, config).await;
        let client = rig.client();
        let calls = join_all((0..MANY).map(|_| held(&client, "k").send())).await;
        let tasks: Vec<_> = calls.into_iter().map(|call| call.into_task()).collect();
        assert!(tasks.iter().all(|task| task.id == tasks[0].id));
        let plain = tokio::spawn(held(&rig.client().without_tasks(), "k").send());
        rig.upstream.until_started("held").await;
        rig.upstream.release("held");
        assert_eq!(plain.await.unwrap().into_text(), "released");
        client.until(&tasks[0], "completed").await;
        let again = held(&client, "k").send().await.into_task();
        assert_eq!(again.id, tasks[0].id);
        assert_eq!(again.created["status"], "completed");
        let plain = held(&rig.client().without_tasks(), "k").send().await;
        assert_eq!(plain.into_text(), "released");
        assert_eq!(rig.upstream.tally("held").started, 1);
    }
}

async fn a_client_that_left_comes_back_with_its_key(era: Era) {
    for config in [Config::never(), Config::auto("10s")] {
        let rig = Rig::start(era, config).await;
        let client = rig.client();
        for _ in 0..2 {
            let call = tokio::spawn(held(&client, "k").send());
            rig.upstream.until_started("held").await;
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
        }
        rig.upstream.release("held");
        rig.upstream
            .until("held", "finished", |tally| tally.finished == 1)
            .await;
        let answer = held(&client, "k").send().await;
        assert_eq!(answer.into_text(), "released");
        let tally = rig.upstream.tally("held");
        assert_eq!((tally.started, tally.cancelled), (1, 0));
    }
}

/// The answer to everything that a round asks, with its state.
fn answered(request: Request, round: &Value) -> Request {
    let keys = round["inputRequests"].as_object().unwrap().keys();
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let answers: Value = keys.map(|key| (key.clone(), answer.clone())).collect();
    request.edit(|message| {
        message["params"]["inputResponses"] = answers;
        message["params"]["requestState"] = round["requestState"].clone();
    })
}

async fn a_question_under_a_key_is_asked_once(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    let client = rig.client().without_tasks();
    let ask = || keyed(&client, "ask", json!({"nonce": "n"}), "k");
    let round = ask().send().await.into_result();
    assert_eq!(round["resultType"], "input_required", "{round}");
    assert_eq!(ask().send().await.into_result(), round);
    // Whether or not it repeats the key.
    let retry = answered(ask(), &round).without("idempotency-key");
    for retry in [retry.clone(), answered(ask(), &round), ask(), retry] {
        assert_eq!(retry.send().await.into_text(), "Ada");
    }
    let legs = rig.upstream.tally("n").started;
    assert_eq!(legs, if era == Era::Modern { 2 } else { 1 });
}

async fn a_question_under_a_key_is_asked_in_the_task(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    let client = rig.client();
    let ask = || keyed(&client, "ask", json!({"nonce": "n"}), "k");
    let task = ask().send().await.into_task();
    let state = client.until(&task, "input_required").await;
    let keys = state["inputRequests"].as_object().unwrap().keys();
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let answers: Value = keys.map(|key| (key.clone(), answer.clone())).collect();
    assert_eq!(ask().send().await.into_task().id, task.id);
    client.update(&task, answers).await.assert_acknowledged();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
    assert_eq!(ask().send().await.into_task().id, task.id);
}

/// The server is gone, and no connection to it is left that could break under a call.
pub(crate) async fn until_unreachable(client: &Client) {
    let tried = async || {
        let refused = client.call("slow", json!({})).await.json();
        let reason = &refused["error"]["data"]["io.raincheck/reason"];
        let unreachable = reason == "upstream_unreachable";
        unreachable.then_some(()).ok_or(refused)
    };
    eventually(PATIENCE, "the server cannot be reached", tried).await;
}

async fn what_did_not_run_may_run_under_its_key(era: Era) {
    let mut rig = Rig::start(era, Config::never()).await;
    let client = rig.client();
    let echo = |text: &str| keyed(&client, "echo", json!({"text": text}), "k");
    // The server is known, and its tools.
    client.call("slow", json!({})).await.into_text();
    let address = rig.upstream.address();
    drop(rig.upstream);
    until_unreachable(&client).await;
    for _ in 0..3 {
        let failed = echo("a").send().await.json();
        let data = &failed["error"]["data"];
        assert_eq!(data["io.raincheck/effect"], "none", "{failed}");
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("; it did not run; it can be called again"));
    }
    rig.upstream = Upstream::start_at(era, address).await;
    assert_eq!(echo("b").send().await.refusal(), (400, -32602));
    let answers = join_all((0..MANY).map(|_| echo("a").send())).await;
    for answer in answers {
        assert_eq!(answer.into_text(), "a");
    }
    assert_eq!(rig.upstream.tally("echo").started, 1);
}

/// Such statuses come after a handler that ran: too slow for its gateway, or done with its form.
async fn what_may_have_run_does_not_run_again(era: Era) {
    for status in [408, 499, 303, 409, 422] {
        let rig = Rig::start(era, Config::never()).await;
        let client = rig.client();
        rig.upstream.end_calls_with(status);
        for _ in 0..3 {
            let answer = keyed(&client, "echo", json!({"text": "a"}), "k").send();
            let failed = answer.await.json();
            let data = &failed["error"]["data"];
            assert_eq!(data["io.raincheck/effect"], "unknown", "{status} {failed}");
        }
        assert_eq!(rig.upstream.tally("echo").started, 1, "{status}");
    }
}

async fn a_challenge_reaches_the_client(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let client = rig.client();
    client.call("slow", json!({})).await.into_text();
    rig.upstream.challenge();
    for _ in 0..2 {
        let answer = keyed(&client, "slow", json!({}), "k").send().await;
        assert_eq!(answer.status, 401, "{}", answer.body);
        assert_eq!(answer.headers["www-authenticate"], CHALLENGE);
    }
}

async fn everybody_hears_of_progress_under_a_token_of_its_own(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let client = rig.client().without_tasks();
    let open = async |token: &str| {
        let call = keyed(&client, "steps", json!({"n": 2}), "k").edit(|message| {
            message["params"]["_meta"]["progressToken"] = json!(token);
        });
        let mut stream = call.stream().await;
        let first = stream.next().await;
        assert_eq!(first["method"], "notifications/progress", "{first}");
        assert_eq!(first["params"]["progressToken"], token, "{first}");
        assert_eq!(first["params"]["total"].as_f64(), Some(2.0), "{first}");
        stream
    };
    let streams = [open("one").await, open("two").await];
    rig.upstream.release("steps");
    for mut stream in streams {
        let mut last = stream.next().await;
        while last.get("method").is_some() {
            last = stream.next().await;
        }
        assert_eq!(last["result"]["content"][0]["text"], "stepped", "{last}");
    }
    assert_eq!(rig.upstream.tally("steps").started, 1);
}

async fn nothing_is_sent_that_cannot_be_claimed(era: Era) {
    let mut redis = RedisServer::start();
    let rig = Rig::start(era, Config::never().redis(&redis.url())).await;
    let client = rig.client();
    client.call("slow", json!({})).await.into_text();
    redis.kill();
    assert_eq!(held(&client, "k").send().await.refusal(), (503, -32603));
    assert_eq!(rig.upstream.tally("held").started, 0);
}

fn attaching(window: &str) -> Config {
    Config::never().terms(&format!("attach = true\nattach_window = {window:?}"))
}

async fn without_the_rule_each_call_is_its_own(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let ann = rig.client().named("Bearer ann");
    for _ in 0..2 {
        ann.call("slow", json!({})).await.into_text();
    }
    assert_eq!(rig.upstream.tally("slow").started, 2);
}

async fn an_identical_call_is_attached(era: Era) {
    let rig = Rig::start(era, attaching("60s")).await;
    let ann = rig.client().named("Bearer ann");
    let slow = |client: &Client, ms: u64| client.calling("slow", json!({"ms": ms})).send();
    for answer in join_all((0..MANY).map(|_| slow(&ann, 50))).await {
        assert_eq!(answer.into_text(), "slept");
    }
    assert_eq!(slow(&ann, 50).await.into_text(), "slept");
    assert_eq!(rig.upstream.tally("slow").started, 1);
    // Other arguments, and another caller.
    assert_eq!(slow(&ann, 51).await.into_text(), "slept");
    let bob = rig.client().named("Bearer bob");
    assert_eq!(slow(&bob, 50).await.into_text(), "slept");
    assert_eq!(rig.upstream.tally("slow").started, 3);
}

async fn calls_of_nobody_are_not_attached(era: Era) {
    let rig = Rig::start(era, attaching("60s")).await;
    for _ in 0..2 {
        rig.client().call("slow", json!({})).await.into_text();
    }
    assert_eq!(rig.upstream.tally("slow").started, 2);
}

async fn after_the_window_it_is_another_call(era: Era) {
    let rig = Rig::start(era, attaching("0s")).await;
    let ann = rig.client().named("Bearer ann");
    for runs in 1..=3 {
        let calls = (0..MANY).map(|_| ann.calling("held", json!({"nonce": runs.to_string()})));
        let calls = tokio::spawn(join_all(calls.map(Request::send)));
        let nonce = runs.to_string();
        rig.upstream.until_started(&nonce).await;
        rig.upstream.release(&nonce);
        for answer in calls.await.unwrap() {
            assert_eq!(answer.into_text(), "released");
        }
        ann.call("slow", json!({})).await.into_text();
        assert_eq!(rig.upstream.tally("slow").started, runs);
    }
}

async fn a_call_that_nobody_comes_back_for_is_cancelled(era: Era) {
    let rig = Rig::start(era, attaching("300ms")).await;
    let ann = rig.client().named("Bearer ann");
    let held = |nonce: &str| ann.calling("held", json!({"nonce": nonce}));
    let wanted = [
        tokio::spawn(held("a").send()),
        tokio::spawn(held("a").send()),
    ];
    rig.upstream.until_started("a").await;
    let left = tokio::spawn(held("b").send());
    rig.upstream.until_started("b").await;
    let [first, second] = wanted;
    for leaves in [first, left] {
        leaves.abort();
        assert!(leaves.await.unwrap_err().is_cancelled());
    }
    let cancelled = rig
        .upstream
        .until("b", "cancelled", |tally| tally.cancelled == 1);
    within(SOON, "what nobody waits for is cancelled", cancelled).await;
    // The call was left no later, and a client waits for it all the time.
    rig.upstream.release("a");
    assert_eq!(second.await.unwrap().into_text(), "released");
    let tally = rig.upstream.tally("a");
    assert_eq!((tally.started, tally.cancelled), (1, 0));
    // The next one is a call of its own.
    let next = tokio::spawn(held("b").send());
    rig.upstream
        .until("b", "started again", |tally| tally.started == 2)
        .await;
    rig.upstream.release("b");
    assert_eq!(next.await.unwrap().into_text(), "released");
}
