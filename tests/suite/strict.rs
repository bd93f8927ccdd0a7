//! What real clients break on, each on the safe side: null where a number may be absent, a name of an
//! older draft, an envelope that is missing. One scene with a task in every state, looked at from
//! everywhere that shows tasks.

use serde_json::{Value, json};

use crate::support::client::{TASKS, Task};
use crate::support::shape::{assert_created, assert_notified, assert_state};
use crate::support::{Client, Config, Era, Rig, in_both_eras};

in_both_eras!(
    tasks_in_every_state_are_shown_as_the_strictest_client_wants,
    every_acknowledgement_is_complete,
    the_extension_is_declared_without_settings,
    lists_say_how_long_they_hold,
    every_result_says_what_it_is,
    a_missing_capability_is_named_as_the_final_text_has_it,
    hints_of_older_drafts_make_no_task,
    hints_of_older_drafts_keep_no_task_away,
);

/// The statuses that there are. What waits for its turn is `working`, too.
const SCENE: [(&str, &str); 6] = [
    ("ask", "input_required"),
    ("echo", "completed"),
    ("fail", "completed"),
    ("error", "failed"),
    ("never", "cancelled"),
    ("held", "working"),
];

/// Names that only older drafts have, and the wrapping of 2025-11-25.
const OLD_NAMES: [&str; 5] = ["ttl", "pollInterval", "task", "tasks", "requestState"];

/// A task in each state, the last of them waiting for its turn behind the one before.
async fn scene(rig: &Rig) -> Vec<(Task, &'static str)> {
    let client = rig.client();
    let mut tasks = Vec::new();
    for (tool, status) in SCENE {
        let task = client.call(tool, json!({"text": "x"})).await.into_task();
        assert_created(&task.created);
        assert_no_null_and_no_old_name(&task.created);
        if status == "cancelled" {
            client.cancel(&task).await.assert_acknowledged();
        }
        client.until(&task, status).await;
        tasks.push((task, status));
    }
    rig.upstream.until_started("held").await;
    let waits = client
        .call("held", json!({"nonce": "queued"}))
        .await
        .into_task();
    assert_created(&waits.created);
    let says_so = |state: &Value| {
        let said = state["statusMessage"].as_str().unwrap_or_default();
        said.starts_with("Waiting for a free place")
    };
    client.until_it(&waits, "waiting", says_so).await;
    assert_eq!(rig.upstream.tally("queued").started, 0);
    tasks.push((waits, "working"));
    tasks
}

fn one_held_at_once() -> Config {
    Config::always().tool("held", "concurrency = 1")
}

async fn tasks_in_every_state_are_shown_as_the_strictest_client_wants(era: Era) {
    let rig = Rig::start(era, one_held_at_once()).await;
    let client = rig.client();
    for (task, status) in scene(&rig).await {
        let state = client.get(&task).await;
        assert_state(&state, status);
        assert_no_null_and_no_old_name(&state);
        for fixed in ["createdAt", "ttlMs"] {
            assert_eq!(state[fixed], task.created[fixed], "{fixed}");
        }
        let mut stream = client.listen(&[&task]).await;
        let told = stream.next_of("notifications/tasks").await;
        assert_notified(&told["params"], status);
        assert_no_null_and_no_old_name(&told["params"]);
    }
}

/// Ours only: a server's own result is its own matter.
#[track_caller]
fn assert_no_null_and_no_old_name(task: &Value) {
    for (name, value) in task.as_object().unwrap() {
        assert!(!value.is_null(), "{name}: {task}");
        assert!(!OLD_NAMES.contains(&name.as_str()), "{name}: {task}");
    }
    for number in ["ttlMs", "pollIntervalMs"] {
        // An integer as it is written, too: no point and no exponent.
        let text = task[number].to_string();
        assert!(text.bytes().all(|b| b.is_ascii_digit()), "{number}: {text}");
    }
}

/// Also where there is nothing to do any more.
async fn every_acknowledgement_is_complete(era: Era) {
    let rig = Rig::start(era, one_held_at_once()).await;
    let client = rig.client();
    for (task, status) in scene(&rig).await {
        client
            .update(&task, json!({"no such key": {"action": "cancel"}}))
            .await
            .assert_acknowledged();
        client.cancel(&task).await.assert_acknowledged();
        let ended = ["completed", "failed", "cancelled"].contains(&status);
        let last = if ended { status } else { "cancelled" };
        assert_state(&client.until(&task, last).await, last);
    }
}

async fn the_extension_is_declared_without_settings(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let discovered = rig.client().request("server/discover", json!({}));
    let answer = discovered.send().await;
    let declared = format!(r#""{TASKS}":{{}}"#);
    assert!(answer.text.contains(&declared), "{}", answer.text);
    let capabilities = &answer.json()["result"]["capabilities"];
    assert!(capabilities.get("tasks").is_none(), "{capabilities}");
}

async fn lists_say_how_long_they_hold(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    for client in [rig.client(), rig.client().without_tasks()] {
        for method in ["server/discover", "tools/list"] {
            let answer = client.request(method, json!({})).send().await;
            let result = answer.into_result();
            assert_eq!(result["resultType"], "complete", "{method}: {result}");
            assert!(result["ttlMs"].is_u64(), "{method}: {result}");
            let scope = result["cacheScope"].as_str().unwrap_or_default();
            assert!(["private", "public"].contains(&scope), "{method}: {result}");
        }
    }
}

/// Plain answers, too: those that came in time, and those to clients that know no tasks.
async fn every_result_says_what_it_is(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    for client in [rig.client(), rig.client().without_tasks()] {
        for tool in ["echo", "fail"] {
            let result = client.call(tool, json!({"text": "x"})).await.into_result();
            assert_eq!(result["resultType"], "complete", "{result}");
            assert!(result["content"].is_array(), "{result}");
        }
    }
}

/// -32003 was a draft's.
async fn a_missing_capability_is_named_as_the_final_text_has_it(era: Era) {
    let rig = Rig::start(era, Config::always().terms("require_tasks = true")).await;
    let task = rig.client().call("echo", json!({})).await.into_task();
    let client = rig.client().without_tasks();
    let filter = json!({"taskIds": [task.id]});
    let requests = [
        client.calling("echo", json!({})),
        client.asking("tasks/get", &task),
        client.updating(&task, json!({})),
        client.asking("tasks/cancel", &task),
        client.listening(filter),
    ];
    for request in requests {
        let refused = request.send().await;
        assert_eq!(refused.refusal(), (400, -32021), "{}", refused.body);
        let required = &refused.json()["error"]["data"]["requiredCapabilities"];
        assert_eq!(*required, json!({"extensions": {TASKS: {}}}));
    }
}

/// What clients of older drafts put into a call to ask for a task.
fn hints() -> [(&'static str, Value); 4] {
    [
        ("createTask", json!({"ttl": 60_000})),
        ("task", json!({"ttl": 60_000, "pollInterval": 300})),
        ("ttl", json!(60_000)),
        ("pollFrequency", json!(300)),
    ]
}

async fn hinted(client: &Client) -> Value {
    let call = client.calling("echo", json!({"text": "x"}));
    let call = call.edit(|message| {
        for (name, hint) in hints() {
            message["params"][name] = hint.clone();
            message["params"]["_meta"][format!("io.modelcontextprotocol/{name}")] = hint;
        }
    });
    call.send().await.into_result()
}

/// Only the capability on the request is consent.
async fn hints_of_older_drafts_make_no_task(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    for client in [
        rig.client().without_tasks(),
        rig.client().declaring(json!({"tasks": {}})),
    ] {
        let result = hinted(&client).await;
        assert_eq!(result["resultType"], "complete", "{result}");
        assert!(result["content"].is_array(), "{result}");
    }
}

async fn hints_of_older_drafts_keep_no_task_away(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let created = hinted(&rig.client()).await;
    assert_created(&created);
    let terms = rig.client().call("echo", json!({})).await.into_task();
    assert_eq!(
        created["ttlMs"], terms.created["ttlMs"],
        "ours, not asked for"
    );
    let task = Task::by_id(created["taskId"].as_str().unwrap());
    for task in [&task, &terms] {
        let state = rig.client().until(task, "completed").await;
        assert_state(&state, "completed");
    }
    assert_eq!(rig.upstream.tally("echo").started, 2);
}
