//! The 2025-11-25 tasks on legacy sessions, in front of a server over HTTP and of a program.

use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::recovery::Pair;
use crate::support::client::{Answer, Client, Request};
use crate::support::stream::Stream;
use crate::support::{Config, Era, PATIENCE, Proxy, Rig, within};

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "2025-11-25";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// In front of what a session runs.
enum Front {
    Web(Rig),
    Program(Proxy),
}

impl Front {
    async fn web(config: Config) -> Self {
        Self::Web(Rig::start(Era::Legacy, config).await)
    }

    async fn program(config: Config) -> Self {
        Self::Program(config.run("legacy").await)
    }

    fn client(&self) -> Client {
        Client::of(match self {
            Self::Web(rig) => rig.proxy.address(),
            Self::Program(proxy) => proxy.address(),
        })
    }

    async fn session(&self) -> Session {
        Session::open(self.client()).await
    }

    /// A tool that runs until it is let go, and what it is called with.
    fn held(&self) -> (&'static str, Value) {
        match self {
            Self::Web(_) => ("held", json!({"nonce": "h"})),
            Self::Program(_) => ("hold", json!({"nonce": "h"})),
        }
    }
}

/// A legacy session, as its client sees it.
#[derive(Debug, Clone)]
struct Session {
    client: Client,
    name: String,
    opened: Value,
}

impl Session {
    async fn open(client: Client) -> Self {
        let answer = client.post(initialize(VERSION)).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let name = answer.headers[SESSION].to_str().unwrap().to_owned();
        let opened = answer.json()["result"].take();
        let session = Self {
            client,
            name,
            opened,
        };
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&ready).send().await.status, 202);
        session
    }

    /// The same client without a session of its own: another replica, or another caller.
    fn at(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    fn post(&self, message: &Value) -> Request {
        self.with_session(self.client.post(message.to_string()))
    }

    fn listening(&self) -> Request {
        let request = self.client.http(Method::GET, "/mcp");
        self.with_session(request.header("accept", "text/event-stream"))
    }

    fn with_session(&self, request: Request) -> Request {
        request
            .header(SESSION, &self.name)
            .header("mcp-protocol-version", VERSION)
    }

    fn asking(&self, method: &str, params: Value) -> Request {
        self.post(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}))
    }

    async fn ask(&self, method: &str, params: Value) -> Answer {
        self.asking(method, params).send().await
    }

    async fn result_of(&self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.into_result()
    }

    /// The JSON-RPC code of a refusal, which never looks like the end of a session.
    async fn code(&self, method: &str, params: Value) -> i64 {
        let (status, code) = self.ask(method, params).await.refusal();
        assert_eq!(status, 200);
        code
    }

    async fn call_as(&self, tool: &str, arguments: Value, task: Value) -> Answer {
        let params = json!({"name": tool, "arguments": arguments, "task": task});
        self.ask("tools/call", params).await
    }

    /// A task, and what was said of it.
    async fn task(&self, tool: &str, arguments: Value) -> (String, Value) {
        let created = self.call_as(tool, arguments, json!({})).await.into_result();
        let task = &created["task"];
        assert_task(task, "working");
        (task["taskId"].as_str().unwrap().to_owned(), task.clone())
    }

    async fn get(&self, task: &str) -> Value {
        let state = self.result_of("tasks/get", json!({"taskId": task})).await;
        assert_eq!(state["taskId"], task);
        state
    }

    async fn until(&self, task: &str, status: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state = self.get(task).await;
            if state["status"] == status {
                assert_task(&state, status);
                return state;
            }
            assert!(Instant::now() < deadline, "never {status}: {state}");
            tokio::task::yield_now().await;
        }
    }

    async fn result(&self, task: &str) -> Value {
        self.result_of("tasks/result", json!({"taskId": task}))
            .await
    }

    /// Answers a question of the server.
    async fn reply(&self, question: &Value, member: &str, answer: Value) {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], member: answer});
        let answer = self.post(&message).send().await;
        assert_eq!((answer.status, &*answer.body), (202, ""));
    }
}

fn initialize(version: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "suite", "version": "1"},
    }})
    .to_string()
}

/// The exact members of this revision's `Task`, of the types that strict clients want.
#[track_caller]
fn assert_task(task: &Value, status: &str) {
    let members = task.as_object().unwrap();
    for key in members.keys() {
        let known = [
            "taskId",
            "status",
            "statusMessage",
            "createdAt",
            "lastUpdatedAt",
            "ttl",
            "pollInterval",
        ];
        assert!(known.contains(&key.as_str()), "{key} in {task}");
    }
    assert_eq!(task["status"], status, "{task}");
    for text in ["taskId", "createdAt", "lastUpdatedAt"] {
        assert!(task[text].is_string(), "{task}");
    }
    for number in ["ttl", "pollInterval"] {
        assert!(task[number].as_u64().is_some_and(|n| n > 0), "{task}");
    }
}

fn accept(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

macro_rules! in_front_of_both {
    ($($name:ident),* $(,)?) => {
        mod web {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Front::web).await;
            })*
        }
        mod program {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Front::program).await;
            })*
        }
    };
}

in_front_of_both!(
    a_call_that_wishes_for_a_task_is_one,
    a_result_is_waited_for,
    a_question_is_put_where_the_result_is_waited_for,
    a_refusal_is_no_decision,
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

#[track_caller]
fn assert_question(question: &Value, task: &str) {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["message"], "Your name?");
    assert_eq!(question["params"]["_meta"][RELATED]["taskId"], task);
    let id = question["id"].as_str().unwrap();
    assert!(id.starts_with(&format!("raincheck/{task}/")), "{id}");
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
    let twice = session
        .with_session(session.client.post(twice))
        .send()
        .await;
    assert_eq!(twice.refusal(), (200, -32602));
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

#[tokio::test]
async fn only_what_speaks_of_tasks_is_changed_of_an_answer() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let direct = Session {
        client: Client::of(rig.upstream.address()),
        ..session.clone()
    };
    let ours = session.ask("tools/list", json!({})).await.body;
    let theirs = direct.ask("tools/list", json!({})).await.body;
    let edit = r#"{"execution":{"taskSupport":"optional"},"#;
    assert!(ours.contains(edit));
    let ours = ours.replace(edit, "{").replace("optional", "required");
    assert_eq!(ours, theirs);
    // So it is on a stream, whose events keep their ids.
    rig.upstream.keep_events();
    let streamed = session.ask("tools/list", json!({})).await;
    assert!(streamed.text.contains(edit), "{}", streamed.body);
    for id in ["id: 0-0\n", "id: 0-1\n"] {
        assert!(streamed.body.contains(id), "{}", streamed.body);
    }
    // A call that is passed on keeps what no serializer would.
    let call = json!({"name": "echo", "arguments": {"text": "x"}});
    let ours = session.ask("tools/call", call.clone()).await.text;
    assert_eq!(ours, direct.ask("tools/call", call).await.text);
}

#[tokio::test]
async fn a_stream_of_the_session_hears_questions_and_changes() {
    let front = Front::program(Config::always()).await;
    let session = front.session().await;
    let mut news = session.listening().stream().await;
    let (task, _) = session.task("ask", json!({})).await;
    let asked = news.next_of("notifications/tasks/status").await;
    assert_task(&asked["params"], "input_required");
    let question = news.next().await;
    assert_question(&question, &task);
    // Where it is put there, it is not put on the stream of the result as well.
    let waiting = session.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    session.reply(&question, "result", accept("Ada")).await;
    assert_eq!(waiting.next().await["result"]["content"][0]["text"], "Ada");
    loop {
        let change = news.next_of("notifications/tasks/status").await;
        assert_eq!(change["params"]["taskId"], task);
        if change["params"]["status"] == "completed" {
            break;
        }
    }
}

#[tokio::test]
async fn a_question_waits_for_the_session_s_stream() {
    let front = Front::program(Config::always()).await;
    let session = front.session().await;
    let (task, _) = session.task("ask", json!({})).await;
    session.until(&task, "input_required").await;
    let mut news = session.listening().stream().await;
    let question = news.next_of("elicitation/create").await;
    // What was said on a stream that is gone is said on the next one.
    drop(news);
    let mut news = reopened(&session).await;
    assert_eq!(news.next_of("elicitation/create").await, question);
    session.reply(&question, "result", accept("Ada")).await;
    session.until(&task, "completed").await;
}

/// The stream before is not gone the moment it is dropped.
async fn reopened(session: &Session) -> Stream {
    let opening = async {
        loop {
            let news = session.listening().stream().await;
            if news.status == 200 {
                return news;
            }
        }
    };
    within(PATIENCE, "the stream can be opened again", opening).await
}

#[tokio::test]
async fn an_error_of_the_call_is_the_result_s() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let (task, _) = session.task("error", json!({})).await;
    session.until(&task, "failed").await;
    let answer = session.ask("tasks/result", json!({"taskId": task})).await;
    assert_eq!(answer.status, 200);
    let error = r#""error":{"code":-32050,"message":"no such luck","data":{"z":1.10,"a":[]}}"#;
    assert!(answer.text.contains(error), "{}", answer.text);
    // What the tool itself calls an error is a result, which its client fetches.
    let (task, _) = session.task("fail", json!({})).await;
    session.until(&task, "completed").await;
    assert_eq!(session.result(&task).await["isError"], true);
    let (task, _) = session.task("big", json!({"bytes": 100_000})).await;
    let result = session.result(&task).await;
    assert_eq!(
        result["content"][0]["text"].as_str().unwrap().len(),
        100_000
    );
}

#[tokio::test]
async fn any_replica_reads_and_answers() {
    let pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let (task, _) = at_a.task("ask", json!({})).await;
    at_b.until(&task, "input_required").await;
    let waiting = at_b.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    let question = waiting.next().await;
    assert_question(&question, &task);
    at_a.reply(&question, "result", accept("Ada")).await;
    assert_eq!(waiting.next().await["result"]["content"][0]["text"], "Ada");
    assert_eq!(at_b.result(&task).await["content"][0]["text"], "Ada");
    let (task, _) = at_b.task("held", json!({"nonce": "h"})).await;
    let cancelled = at_a.result_of("tasks/cancel", json!({"taskId": task}));
    assert_task(&cancelled.await, "cancelled");
}

#[tokio::test]
async fn a_store_that_is_away_is_no_unknown_task() {
    let config = "read_patience = \"1s\"\ncreate_patience = \"1s\"";
    let pair = Pair::with(Era::Legacy, "", |c| c.store(config)).await;
    let session = Session::open(pair.at_a()).await;
    let (task, _) = session.task("held", json!({"nonce": "h"})).await;
    pair.redis.freeze();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let answer = session.ask(method, json!({"taskId": task})).await;
        assert_eq!(answer.refusal(), (503, -32603), "{method}");
    }
    let refused = session
        .call_as("echo", json!({"text": "x"}), json!({}))
        .await;
    assert_eq!(refused.refusal(), (503, -32603));
    pair.redis.thaw();
    session.until(&task, "cancelled").await;
}

#[tokio::test]
async fn a_drain_lets_go_of_who_waits() {
    let mut pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let (task, _) = at_a.task("held", json!({"nonce": "h"})).await;
    let at_b = at_a.at(pair.at_b());
    let waiting = at_b.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    let stopping = Instant::now();
    pair.b.terminate();
    assert_eq!(waiting.next().await["error"]["code"], -32603);
    assert!(pair.b.ended().await.success());
    assert!(stopping.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn a_tool_that_the_server_runs_as_a_task_only_is_like_any_other() {
    let config = Config::always().tool("o*", "mode = \"never\"");
    for (config, says) in [(Config::always(), "optional"), (config, "required")] {
        let rig = Rig::start(Era::Legacy, config).await;
        let session = Session::open(rig.client()).await;
        let tools = session.result_of("tools/list", json!({})).await;
        let tools = tools["tools"].as_array().unwrap();
        let only = tools.iter().find(|tool| tool["name"] == "only").unwrap();
        assert_eq!(only["execution"]["taskSupport"], says);
        let (task, _) = session.task("only", json!({})).await;
        let result = session.result(&task).await;
        assert_eq!(result["content"][0]["text"], "theirs");
        let plain = json!({"name": "only", "arguments": {}});
        let result = session.result_of("tools/call", plain).await;
        assert_eq!(result["content"][0]["text"], "theirs");
    }
}

#[tokio::test]
async fn a_server_s_own_tasks_are_the_client_s_where_the_operator_says_so() {
    let pass = Config::always().section("upstream", "native_tasks = \"pass\"");
    let rig = Rig::start(Era::Legacy, pass).await;
    let session = Session::open(rig.client()).await;
    let theirs = json!({"list": {}, "cancel": {}});
    assert_eq!(session.opened["capabilities"]["tasks"], theirs);
    let unknown = json!({"taskId": "theirs"});
    session.ask("tasks/get", unknown).await;
    assert_eq!(rig.upstream.requests("tasks/get").len(), 1);
    let hidden = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(hidden.client()).await;
    session.code("tasks/get", json!({"taskId": "theirs"})).await;
    assert!(hidden.upstream.requests("tasks/get").is_empty());
}
