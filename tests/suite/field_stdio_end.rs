//! `raincheck stdio` after the end of its input: what was read is answered, and nothing holds the process up.

use std::process::Command;

use serde_json::{Value, json};

use crate::stdio_front::{Launched, modern};
use crate::support::upstream::Upstream;
use crate::support::{Config, Era, PATIENCE, eventually, in_both_eras};

in_both_eras!(
    what_was_read_is_answered,
    a_task_is_not_waited_for,
    a_client_that_has_died_holds_nothing_up,
    what_takes_longer_than_the_grace_period_ends_with_an_error,
    a_second_signal_ends_the_process_at_once,
);

/// A grace period that no test waits for.
const LONG: &str = "grace = \"10m\"";

fn patient(config: Config) -> Config {
    config.section("drain", LONG)
}

fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "c", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params})
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    request(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

/// The same request of a modern client.
fn of_modern(mut message: Value) -> Value {
    message["params"] = modern(message["params"].take());
    message
}

fn slow(id: u64) -> Value {
    call(id, "slow", json!({"ms": 300}))
}

/// All requests of a file, or of `printf`.
async fn what_was_read_is_answered(era: Era) {
    let upstream = Upstream::start(era).await;
    let list = || request(2, "tools/list", json!({}));
    for (what, input) in [
        ("a handshake", vec![initialize()]),
        ("a list", vec![initialize(), initialized(), list()]),
        (
            "all at once",
            vec![initialize(), initialized(), list(), slow(3), slow(4)],
        ),
        ("a modern list", vec![of_modern(list())]),
        ("a modern call", vec![of_modern(slow(3)), of_modern(list())]),
    ] {
        let mut client = Launched::new(patient(Config::never()), &upstream);
        for message in &input {
            client.say(message.clone()).await;
        }
        client.close();
        for message in input.iter().filter(|message| message.get("id").is_some()) {
            let answer = client.answer(message["id"].clone()).await;
            assert!(answer["result"].is_object(), "{what}: {answer}");
        }
        client.ended().await;
    }
}

/// Where the client has heard of a task, its result is nobody's on this pipe.
async fn a_task_is_not_waited_for(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(patient(Config::always()), &upstream);
    client
        .say(of_modern(call(1, "held", json!({"nonce": "a"}))))
        .await;
    client.close();
    let task = client.answer(json!(1)).await;
    assert!(task["result"]["taskId"].is_string(), "{task}");
    client.ended().await;
}

/// The client can answer no question any more: neither one that it was asked before, nor a later one.
#[tokio::test]
async fn a_question_that_nobody_can_answer_holds_nothing_up() {
    let upstream = Upstream::start(Era::Legacy).await;
    let terms = "companion_tools = false";
    for asked_before in [true, false] {
        let config = patient(Config::never()).terms(terms);
        let mut client = Launched::new(config, &upstream);
        client.initialize().await;
        let nonce = format!("asked before: {asked_before}");
        let ask = if asked_before {
            call(1, "ask", json!({"nonce": nonce}))
        } else {
            call(1, "steps", json!({"nonce": nonce, "n": 0, "then": "ask"}))
        };
        client.say(ask).await;
        upstream.until_started(&nonce).await;
        if asked_before {
            client.notification("elicitation/create").await;
            client.close();
        } else {
            client.close();
            upstream.release(&nonce);
        }
        let answer = client.answer(json!(1)).await;
        assert_eq!(answer["id"], 1, "{answer}");
        client.ended().await;
    }
}

/// Both pipes of a client that was killed are closed. Its calls are cancelled as before.
async fn a_client_that_has_died_holds_nothing_up(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(patient(Config::never()), &upstream);
    client
        .say(of_modern(call(1, "held", json!({"nonce": "a"}))))
        .await;
    upstream.until_started("a").await;
    client.dies();
    client.ended().await;
    upstream
        .until("a", "cancelled", |tally| tally.cancelled == 1)
        .await;
}

async fn what_takes_longer_than_the_grace_period_ends_with_an_error(era: Era) {
    let upstream = Upstream::start(era).await;
    let config = Config::never().section("drain", "grace = \"500ms\"");
    let mut client = Launched::new(config, &upstream);
    client
        .say(of_modern(call(1, "held", json!({"nonce": "a"}))))
        .await;
    upstream.until_started("a").await;
    client.close();
    let answer = client.answer(json!(1)).await;
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    client.ended().await;
}

async fn a_second_signal_ends_the_process_at_once(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(patient(Config::never()), &upstream);
    client
        .say(of_modern(call(1, "held", json!({"nonce": "a"}))))
        .await;
    upstream.until_started("a").await;
    client.close();
    let signal = |client: &Launched| {
        let pid = client.pid().to_string();
        Command::new("kill").arg(pid).status().unwrap();
    };
    signal(&client);
    eventually(PATIENCE, "the drain begins", async || {
        client.log().contains("draining")
    })
    .await;
    signal(&client);
    client.ended().await;
    let log = client.log();
    assert!(log.contains("not drained"), "{log}");
}
