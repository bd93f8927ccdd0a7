//! A client that does not read what is said of its call: it misses notifications, and the call goes on.

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{Client, Config, Era, Rig, in_both_eras};

in_both_eras!(a_call_whose_client_does_not_read_becomes_a_task);

/// More than all that lies between a server and a client that does not read can hold.
fn talkative(client: &Client) -> Request {
    let arguments = json!({"n": 400, "padding": 64 << 10});
    let call = client.calling("steps", arguments);
    call.edit(|message| message["params"]["_meta"]["progressToken"] = json!("p"))
}

async fn a_call_whose_client_does_not_read_becomes_a_task(era: Era) {
    // Long enough that all that can be held is held before it ends.
    let rig = Rig::start(era, Config::auto("4s")).await;
    let client = rig.client();
    let mut stream = talkative(&client).stream().await;
    rig.upstream.release("steps");
    // All of it was said, and heard.
    let ended = |tally: crate::support::upstream::Tally| tally.finished == 1;
    rig.upstream.until("steps", "ended", ended).await;
    // What is there when it reads again ends with the task, or with the result if that was sooner.
    let mut told = 0;
    let answer = loop {
        let message: Value = stream.next().await;
        if message.get("id").is_some() {
            break message;
        }
        told += 1;
    };
    assert!(told < 400, "{told}");
    let result = &answer["result"];
    assert_eq!(result["resultType"], "task", "{answer}");
    let task = crate::support::client::Task::by_id(result["taskId"].as_str().unwrap());
    client.until(&task, "completed").await;
}
