//! `raincheck stdio`: the same server for a client that launches it and speaks over its pipes.

use std::process::Stdio;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::shape::{assert_created, assert_state};
use crate::support::upstream::{Greeting, Upstream};
use crate::support::{Config, Era, PATIENCE, TempDir, eventually, in_both_eras, within};

in_both_eras!(
    a_call_is_a_task,
    a_question_waits_in_the_task,
    a_held_call_is_cancelled_by_its_client,
    what_is_wrong_is_answered_under_its_id,
    a_sign_in_that_the_server_asks_for_is_said,
);

/// The process, and its two pipes. Whatever it writes must be a message.
pub(crate) struct Launched {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Lines<BufReader<ChildStdout>>>,
    /// Messages that came before they were asked for.
    early: Vec<Value>,
    directory: TempDir,
    /// Where its tasks live.
    state: Arc<TempDir>,
}

impl Launched {
    pub(crate) fn new(config: Config, upstream: &Upstream) -> Self {
        Self::with(&["--upstream", &upstream.url()], &config)
    }

    pub(crate) fn with(arguments: &[&str], config: &Config) -> Self {
        Self::remembering(arguments, config, &Arc::new(TempDir::new()))
    }

    /// Where another process ran, or runs: what that one kept is found.
    pub(crate) fn remembering(arguments: &[&str], config: &Config, state: &Arc<TempDir>) -> Self {
        let directory = TempDir::new();
        let file = directory.path().join("raincheck.toml");
        std::fs::write(&file, config.text()).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_raincheck"))
            .arg("stdio")
            .args(arguments)
            .arg("--config")
            .arg(file)
            .env("XDG_STATE_HOME", state.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: child.stdout.take().map(|it| BufReader::new(it).lines()),
            child,
            early: Vec::new(),
            directory,
            state: Arc::clone(state),
        }
    }

    /// What it said beside the messages.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    async fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.write(&message.to_string()).await;
    }

    /// The first message that is it.
    async fn hear(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&is_it) {
            return self.early.remove(at);
        }
        loop {
            let output = self.output.as_mut().unwrap();
            let line = within(PATIENCE, what, output.next_line()).await;
            let line = line.unwrap().expect("it still runs");
            let message: Value = serde_json::from_str(&line).expect("nothing but messages");
            if is_it(&message) {
                return message;
            }
            self.early.push(message);
        }
    }

    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        self.hear(method, |message| message["method"] == method)
            .await
    }

    pub(crate) async fn answer(&mut self, id: Value) -> Value {
        let is_it = |m: &Value| m.get("method").is_none() && m["id"] == id;
        self.hear(&format!("the answer to {id}"), is_it).await
    }

    pub(crate) async fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        self.answer(id).await
    }

    async fn until(&mut self, task: &Value, status: &str) -> Value {
        // One look at a time.
        let front = tokio::sync::Mutex::new((self, 1000..));
        let what = format!("the task is {status}");
        eventually(PATIENCE, &what, async || {
            let (front, ids) = &mut *front.lock().await;
            let params = modern(json!({"taskId": task["taskId"]}));
            let state = front.request(json!(ids.next()), "tasks/get", params).await;
            if state["result"]["status"] == status {
                return Ok(state["result"].clone());
            }
            assert_eq!(state["result"]["status"], "working", "{state}");
            Err(state)
        })
        .await
    }

    pub(crate) async fn initialize(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"},
        });
        let answer = self.request(json!("init"), "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        self.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
    }

    /// The end of its input.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// What is seen of a client that was killed.
    pub(crate) fn dies(&mut self) {
        (self.input, self.output) = (None, None);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) async fn ended(&mut self) {
        self.close();
        let status = within(PATIENCE, "the process ends", self.child.wait()).await;
        assert!(status.unwrap().success());
    }
}

/// Params of a modern client that knows tasks and answers questions.
pub(crate) fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    });
    params
}

pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments})
}

async fn a_call_is_a_task(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(Config::always(), &upstream);
    let found = client
        .request(json!(1), "server/discover", modern(json!({})))
        .await;
    let extensions = &found["result"]["capabilities"]["extensions"];
    assert_eq!(extensions["io.modelcontextprotocol/tasks"], json!({}));

    let held = modern(call("held", json!({"nonce": "a"})));
    let task = client.request(json!("two"), "tools/call", held).await["result"].clone();
    assert_created(&task);
    upstream.until_started("a").await;
    upstream.release("a");
    let state = client.until(&task, "completed").await;
    assert_state(&state, "completed");
    assert_eq!(state["result"]["content"][0]["text"], "released");

    // A tool whose argument is mirrored into a header, which a pipe has none of.
    let mirrored = modern(call("with_header", json!({"text": "é", "region": "eu"})));
    let task = client.request(json!(3), "tools/call", mirrored).await["result"].clone();
    client.until(&task, "completed").await;
    client.ended().await;
}

async fn a_question_waits_in_the_task(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(Config::always().terms("input = \"in_task\""), &upstream);
    let ask = modern(call("ask", json!({"nonce": "a"})));
    let task = client.request(json!(1), "tools/call", ask).await["result"].clone();
    let asks = client.until(&task, "input_required").await;
    let key = asks["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let answers = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
    let params = modern(json!({"taskId": task["taskId"], "inputResponses": answers}));
    let told = client.request(json!(2), "tasks/update", params).await;
    assert_eq!(told["result"]["resultType"], "complete", "{told}");
    let state = client.until(&task, "completed").await;
    assert!(
        state["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("Ada")
    );
}

/// A client that is started again polls what it polled before.
#[tokio::test]
async fn a_task_is_found_by_the_next_process() {
    let upstream = Upstream::start(Era::Legacy).await;
    let make = async |client: &mut Launched| {
        let held = modern(call("held", json!({})));
        client.request(json!(1), "tools/call", held).await["result"].clone()
    };
    let mut one = Launched::new(Config::always(), &upstream);
    let task = make(&mut one).await;
    // Another session of the same client, at the same time.
    let state = Arc::clone(&one.state);
    let url = upstream.url();
    let to_it = ["--upstream", url.as_str()];
    let mut other = Launched::remembering(&to_it, &Config::always(), &state);
    let others = make(&mut other).await;
    assert_ne!(task["taskId"], others["taskId"]);
    one.child.kill().await.unwrap();
    other.ended().await;
    let mut again = Launched::remembering(&to_it, &Config::always(), &state);
    for task in [task, others] {
        let found = again.until(&task, "failed").await;
        assert_eq!(found["taskId"], task["taskId"]);
    }
    again.ended().await;
}

/// What closing the connection is over HTTP.
async fn a_held_call_is_cancelled_by_its_client(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(Config::never(), &upstream);
    let held = modern(call("held", json!({"nonce": "a"})));
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": held});
    client.say(request).await;
    upstream.until_started("a").await;
    let cancel = json!({"requestId": 7, "_meta": modern(json!({}))["_meta"]});
    client
        .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}))
        .await;
    upstream
        .until("a", "cancelled", |tally| tally.cancelled == 1)
        .await;
    // Its id is free again.
    let echo = modern(call("echo", json!({"text": "x", "nonce": "b"})));
    let answer = client.request(json!(7), "tools/call", echo).await;
    assert_eq!(answer["result"]["content"][0]["text"], "x");
}

async fn what_is_wrong_is_answered_under_its_id(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(Config::never(), &upstream);
    client.write("junk").await;
    assert!(client.answer(Value::Null).await["error"]["code"].is_i64());
    client.write("").await;
    let mut params = modern(json!({}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2030-01-01");
    let answer = client.request(json!(1), "tools/list", params).await;
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    let params = modern(json!({"taskId": "none"}));
    let answer = client.request(json!(2), "tasks/get", params).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let long = format!("{{\"long\":\"{}\"}}", "x".repeat(5 << 20));
    client.write(&long).await;
    assert_eq!(client.answer(Value::Null).await["error"]["code"], -32600);
    // It goes on.
    let answer = client
        .request(json!(3), "tools/list", modern(json!({})))
        .await;
    assert!(answer["result"]["tools"].is_array(), "{answer}");
}

/// Of the words of OAuth a client on a pipe can make nothing.
async fn a_sign_in_that_the_server_asks_for_is_said(era: Era) {
    let upstream = Upstream::start(era).await;
    upstream.challenge();
    let mut client = Launched::new(Config::never(), &upstream);
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    });
    for id in [1, 2] {
        let answer = client
            .request(json!(id), "initialize", params.clone())
            .await;
        assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("The server asks for a sign-in (HTTP 401)")
                && message.contains("RAINCHECK_UPSTREAM__HEADERS__AUTHORIZATION"),
            "{message}"
        );
    }
    // A modern client is told in any case that its credentials are the matter.
    let answer = client
        .request(json!(3), "tools/list", modern(json!({})))
        .await;
    assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let log = client.log();
    assert_eq!(log.matches("asks for a sign-in").count(), 1, "{log}");
    assert!(log.contains("WARN"), "{log}");
    client.ended().await;
}

#[tokio::test]
async fn a_legacy_client_has_a_session_that_it_knows_nothing_of() {
    let upstream = Upstream::start(Era::Legacy).await;
    // For its own list of the server's tools, raincheck would open a session of its own.
    let config = Config::always().terms("companion_tools = false");
    let mut client = Launched::new(config, &upstream);
    client.initialize().await;
    let echo = call("echo", json!({"text": "x", "nonce": "b"}));
    let answer = client.request(json!(1), "tools/call", echo.clone()).await;
    assert_eq!(answer["result"]["content"][0]["text"], "x");

    // The server asks, and the client answers.
    let ask = call("ask", json!({"nonce": "a"}));
    client
        .say(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": ask}))
        .await;
    let is_asked = |m: &Value| m["method"] == "elicitation/create";
    let asked = client.hear("the question", is_asked).await;
    let content = json!({"action": "accept", "content": {"name": "Ada"}});
    client
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": content}))
        .await;
    let answer = client.answer(json!(2)).await;
    assert!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("Ada")
    );

    // What the server says unasked.
    upstream.until_listened().await;
    upstream.tell("notifications/tools/list_changed");
    let is_change = |m: &Value| m["method"] == "notifications/tools/list_changed";
    client.hear("the change", is_change).await;

    // A session that the server lost is opened again, and nothing is lost with it.
    upstream.forget_sessions();
    let answer = client.request(json!(3), "tools/call", echo).await;
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    assert_eq!(upstream.requests("initialize").len(), 2);
    client.ended().await;
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_again_is_tried_by_the_next_request() {
    let upstream = Upstream::start(Era::Legacy).await;
    let mut client = Launched::new(Config::never(), &upstream);
    client.initialize().await;
    upstream.until_listened().await;
    upstream.forget_sessions();
    upstream.greet(Greeting::Refuse);
    let echo = call("echo", json!({"text": "x", "nonce": "b"}));
    for id in [1, 2] {
        let answer = client.request(json!(id), "tools/call", echo.clone()).await;
        assert!(answer["error"]["code"].is_i64(), "{answer}");
    }
    // A stream that goes on after the answer delays no other call.
    upstream.greet(Greeting::AnswerAndStay);
    let answer = client.request(json!(3), "tools/call", echo).await;
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    client.ended().await;
}

/// What a pipe holds, and raincheck beside it, is less than the server says before it asks.
#[tokio::test]
async fn a_question_behind_a_burst_comes_to_a_client_that_reads_late() {
    let upstream = Upstream::start(Era::Legacy).await;
    let terms = "companion_tools = true\nfallback_after = \"20s\"";
    let mut client = Launched::new(Config::auto("10s").terms(terms), &upstream);
    client.initialize().await;
    upstream.release("a");
    let arguments = json!({"nonce": "a", "n": 400, "padding": 4096, "then": "ask"});
    let mut steps = call("steps", arguments);
    steps["_meta"] = json!({"progressToken": "t"});
    client
        .say(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": steps}))
        .await;
    upstream.until_started("a").await;
    // Another client's call takes longer than all of this.
    let mut other = Launched::new(Config::never(), &upstream);
    other.initialize().await;
    let slow = call("slow", json!({"ms": 1500}));
    let slept = other.request(json!(1), "tools/call", slow).await;
    assert!(slept["result"].is_object(), "{slept}");

    let is_asked = |m: &Value| m["method"] == "elicitation/create";
    let asked = client.hear("the question", is_asked).await;
    let steps = client.early.iter().map(|note| &note["params"]["progress"]);
    assert!(steps.eq(&(1..=400).map(Value::from).collect::<Vec<_>>()));
    let content = json!({"action": "accept", "content": {"name": "Ada"}});
    client
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": content}))
        .await;
    let answer = client.answer(json!(1)).await;
    assert_eq!(answer["result"]["content"][0]["text"], "Ada", "{answer}");
    client.ended().await;
}
