//! What holds in front of a server over HTTP as well as of a program.

use serde_json::{Value, json};

use super::{Front, RELATED, Session, assert_question, assert_task};
use crate::support::Config;
use crate::support::session::accept;

macro_rules! in_front_of_both {
    ($($name:ident),* $(,)?) => {
        mod web {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::super::Front::web).await;
            })*
        }
        mod program {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::super::Front::program).await;
            })*
        }
    };
}

in_front_of_both!(
    a_call_that_wishes_for_a_task_is_one,
    a_result_is_waited_for,
    a_question_is_put_where_the_result_is_waited_for,
    a_refusal_is_no_decision,
    a_session_is_of_the_version_that_it_agreed_on,
    a_task_is_cancelled_once,
    the_callers_own_tasks_are_listed,
    a_task_is_its_callers,
    a_wanted_ttl_has_limits,
    tasks_are_advertised,
    what_policy_forbids_is_no_task,
    both_dialects_read_one_task,
    what_wishes_for_no_task_is_untouched,
);

async fn a_call_that_wishes_for_a_task_is_one<F: Future<Output = Front>>(
    front: impl Fn(Config) -> F,
) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    let (task, created) = session.task("echo", json!({"text": "hi"})).await;
    let done = session.until(&task, "completed").await;
    assert_eq!(done["createdAt"], created["createdAt"]);
    let result = session.result(&task).await;
    assert_eq!(result["content"][0]["text"], "hi");
    assert_eq!(result["_meta"][RELATED], json!({"taskId": task}));
    assert!(result.get("resultType").is_none(), "{result}");
    // Once more, and with what is not to be looked at there.
    let params = json!({"taskId": task, "task": {"ttl": 1}, "_meta": {"progressToken": 1}});
    assert_eq!(session.result_of("tasks/result", params).await, result);
}

async fn a_result_is_waited_for<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    let (tool, arguments) = front.held();
    let (task, _) = session.task(tool, arguments).await;
    let waiting = session.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    assert_eq!(waiting.status, 200);
    session.get(&task).await;
    let cancelled = session.result_of("tasks/cancel", json!({"taskId": task}));
    assert_task(&cancelled.await, "cancelled");
    // The head came before the end did: what is said is said on the stream.
    let answer = waiting.next().await;
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["error"]["code"], -32603);
    assert!(waiting.next_or_end().await.is_none());
}

async fn a_question_is_put_where_the_result_is_waited_for<F: Future<Output = Front>>(
    front: impl Fn(Config) -> F,
) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    let (task, _) = session.task("ask", json!({})).await;
    session.until(&task, "input_required").await;
    let waiting = session.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    let question = waiting.next().await;
    assert_question(&question, &task);
    // Another stream is another chance to see it, under the same name.
    let again = session.asking("tasks/result", json!({"taskId": task}));
    assert_eq!(again.stream().await.next().await, question);
    session.reply(&question, "result", accept("Ada")).await;
    let answer = waiting.next().await;
    assert_eq!(answer["result"]["content"][0]["text"], "Ada");
    // It is answered: another answer changes nothing.
    session.reply(&question, "result", accept("Bob")).await;
    let result = session.result(&task).await;
    assert_eq!(result["content"][0]["text"], "Ada");
}

/// Some clients leave the header out.
async fn a_session_is_of_the_version_that_it_agreed_on<F: Future<Output = Front>>(
    front: impl Fn(Config) -> F,
) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    let params = json!({"name": "ask", "arguments": {}, "task": {}});
    let call = session.asking("tools/call", params);
    let made = call.without("mcp-protocol-version").send().await;
    assert_task(&made.into_result()["task"], "working");
}

async fn a_refusal_is_no_decision<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    for (member, answer) in [
        (
            "error",
            json!({"code": -32601, "message": "Method not found"}),
        ),
        ("result", json!({"action": "perhaps"})),
    ] {
        let (task, _) = session.task("ask", json!({})).await;
        let waiting = session.asking("tasks/result", json!({"taskId": task}));
        let mut waiting = waiting.stream().await;
        let question = waiting.next().await;
        session.reply(&question, member, answer).await;
        let text = &waiting.next().await["result"]["content"][0]["text"];
        assert!(text.as_str().unwrap().contains("cancel"), "{text}");
    }
}

async fn a_task_is_cancelled_once<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    let (tool, arguments) = front.held();
    let (task, _) = session.task(tool, arguments).await;
    if let Front::Web(rig) = &front {
        rig.upstream.until_started("h").await;
    }
    let named = json!({"taskId": task});
    let cancelled = session.result_of("tasks/cancel", named.clone()).await;
    assert_task(&cancelled, "cancelled");
    assert_eq!(session.code("tasks/cancel", named.clone()).await, -32602);
    assert_eq!(session.code("tasks/result", named).await, -32603);
    assert_eq!(session.get(&task).await["status"], "cancelled");
    if let Front::Web(rig) = &front {
        let told = |tally: crate::support::upstream::Tally| tally.cancelled == 1;
        rig.upstream.until("h", "are cancelled", told).await;
    }
    let (done, _) = session.task("echo", json!({"text": "x"})).await;
    session.until(&done, "completed").await;
    let named = json!({"taskId": done});
    assert_eq!(session.code("tasks/cancel", named).await, -32602);
}

async fn the_callers_own_tasks_are_listed<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let front = front(Config::always()).await;
    let ann = Session::open(front.client().named("Bearer ann")).await;
    let bob = Session::open(front.client().named("Bearer bob")).await;
    assert_eq!(
        ann.result_of("tasks/list", json!({})).await,
        json!({"tasks": []})
    );
    let mut made = Vec::new();
    for _ in 0..103 {
        made.push(ann.task("echo", json!({"text": "x"})).await.0);
    }
    let (of_bob, _) = bob.task("echo", json!({"text": "x"})).await;
    let first = ann.result_of("tasks/list", json!({})).await;
    let next = first["nextCursor"].as_str().unwrap();
    let last = ann.result_of("tasks/list", json!({"cursor": next})).await;
    assert!(last.get("nextCursor").is_none(), "{last}");
    let names = |page: &Value| -> Vec<String> {
        let tasks = page["tasks"].as_array().unwrap().iter();
        tasks
            .map(|task| task["taskId"].as_str().unwrap().to_owned())
            .collect()
    };
    let dates: Vec<_> = first["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["createdAt"])
        .collect();
    assert!(
        dates.is_sorted_by(|a, b| a.as_str() >= b.as_str()),
        "{first}"
    );
    let mut listed = names(&first);
    assert_eq!(listed.len(), 100);
    listed.extend(names(&last));
    listed.sort();
    made.sort();
    assert_eq!(listed, made);
    assert_eq!(
        names(&bob.result_of("tasks/list", json!({})).await),
        [of_bob]
    );
    for bad in [json!("nonsense"), json!(""), json!(7), json!(null)] {
        assert_eq!(ann.code("tasks/list", json!({"cursor": bad})).await, -32602);
    }
    let nobody = front.session().await;
    assert_eq!(nobody.code("tasks/list", json!({})).await, -32601);
}

async fn a_task_is_its_callers<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let front = front(Config::always()).await;
    let ann = Session::open(front.client().named("Bearer ann")).await;
    let bob = Session::open(front.client().named("Bearer bob")).await;
    let (tool, arguments) = front.held();
    let (task, _) = ann.task(tool, arguments).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let foreign = bob.ask(method, json!({"taskId": task})).await;
        let unknown = json!({"taskId": "00000000-0000-4000-8000-000000000000"});
        assert_eq!(foreign.refusal(), (200, -32602));
        assert_eq!(foreign.body, bob.ask(method, unknown).await.body);
        assert_eq!(bob.code(method, json!({"taskId": "x"})).await, -32602);
        assert_eq!(bob.code(method, json!({})).await, -32602);
    }
    // On another session of the caller's own it is there.
    let later = Session::open(front.client().named("Bearer ann")).await;
    assert_eq!(later.get(&task).await["status"], "working");
}

async fn a_wanted_ttl_has_limits<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let terms = "max_duration = \"10m\"\nretention = \"1m\"";
    let front = front(Config::always().terms(terms)).await;
    let session = front.session().await;
    for (wanted, stated) in [
        (json!({}), 660_000),
        (json!({"ttl": null}), 660_000),
        (json!({"ttl": 0}), 601_000),
        (json!({"ttl": 120_000}), 720_000),
        (json!({"ttl": 1.5e99}), 600_000 + 24 * 60_000),
    ] {
        let created = session
            .call_as("echo", json!({"text": "x"}), wanted.clone())
            .await;
        let created = created.into_result();
        assert_eq!(created["task"]["ttl"], stated, "{wanted}");
        let task = created["task"]["taskId"].as_str().unwrap().to_owned();
        assert_eq!(session.get(&task).await["ttl"], stated);
    }
    let wrong = session
        .call_as("echo", json!({}), json!({"ttl": "1m"}))
        .await;
    assert_eq!(wrong.refusal(), (200, -32602));
}

async fn tasks_are_advertised<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let config = Config::always()
        .tool("echo", "mode = \"never\"")
        .tool("ask*", "require_tasks = true");
    let front = front(config).await;
    let requests = json!({"tools": {"call": {}}});
    let nobody = front.session().await;
    let tasks = &nobody.opened["capabilities"]["tasks"];
    assert_eq!(*tasks, json!({"cancel": {}, "requests": requests}));
    let ann = Session::open(front.client().named("Bearer ann")).await;
    let tasks = &ann.opened["capabilities"]["tasks"];
    assert_eq!(
        *tasks,
        json!({"list": {}, "cancel": {}, "requests": requests})
    );
    assert_eq!(
        ann.opened["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    let tools = ann.result_of("tools/list", json!({})).await;
    for tool in tools["tools"].as_array().unwrap() {
        let says = &tool["execution"]["taskSupport"];
        match tool["name"].as_str().unwrap() {
            "echo" => assert!(says.is_null(), "{tool}"),
            "ask" | "ask_two" | "ask_twice" => assert_eq!(says, "required", "{tool}"),
            _ => assert_eq!(says, "optional", "{tool}"),
        }
    }
}

async fn what_policy_forbids_is_no_task<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let config = Config::always()
        .tool("echo", "mode = \"never\"")
        .tool("ask", "require_tasks = true");
    let front = front(config).await;
    let session = front.session().await;
    let never = session
        .call_as("echo", json!({"text": "x"}), json!({}))
        .await;
    assert_eq!(never.refusal(), (200, -32601));
    let plain = json!({"name": "ask", "arguments": {}});
    assert_eq!(session.code("tools/call", plain).await, -32601);
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","name":"echo","task":{}}}"#;
    let twice = session.post_text(twice).send().await;
    // Beside a rule that may refuse a call, what two readers could read differently is refused unread.
    assert_eq!(twice.refusal(), (400, -32600));
}

async fn both_dialects_read_one_task<F: Future<Output = Front>>(front: impl Fn(Config) -> F) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    let (task, _) = session.task("echo", json!({"text": "hi"})).await;
    let modern = front.client();
    let named = crate::support::client::Task::by_id(task);
    let state = modern.until(&named, "completed").await;
    assert_eq!(state["result"]["resultType"], "complete");
    assert!(state["result"]["_meta"].get(RELATED).is_none(), "{state}");
    let made = modern.call("echo", json!({"text": "ho"})).await.into_task();
    modern.until(&made, "completed").await;
    assert_eq!(session.result(&made.id).await["content"][0]["text"], "ho");
    // What one dialect alone has, the other does not.
    let refused = modern.request("tasks/result", json!({"taskId": made.id}));
    assert_eq!(refused.send().await.refusal(), (404, -32601));
    let update = session.ask(
        "tasks/update",
        json!({"taskId": made.id, "inputResponses": {}}),
    );
    assert!(update.await.json()["error"].is_object());
}

async fn what_wishes_for_no_task_is_untouched<F: Future<Output = Front>>(
    front: impl Fn(Config) -> F,
) {
    let front = front(Config::always()).await;
    let session = front.session().await;
    let plain = json!({"name": "echo", "arguments": {"text": "x"}});
    let answer = session.result_of("tools/call", plain).await;
    assert_eq!(answer["content"][0]["text"], "x");
    assert!(answer.get("task").is_none() && answer.get("resultType").is_none());
    // Another revision knows no tasks.
    let older = session
        .asking("tools/list", json!({}))
        .header("mcp-protocol-version", "2025-06-18");
    let tools = older.send().await.into_result();
    assert!(tools["tools"][0].get("execution").is_none(), "{tools}");
}
