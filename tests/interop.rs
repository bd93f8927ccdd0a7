//! rmcp, a client written by others, against the built binary in front of the plain Python upstreams
//! and of servers made with rmcp.
//!
//! Needs the environments that `tests/setup.sh` installs; without them it fails and says so.

#![expect(
    clippy::disallowed_methods,
    reason = "tests own their tasks and environment"
)]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities, ClientConfig,
    CreateTaskResult, DetailedTask, ErrorCode, GetTaskParams, Implementation, JsonObject,
    ProtocolVersion, TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::eventually::eventually;

#[path = "support/eventually.rs"]
#[expect(dead_code, reason = "every wait of this binary has a runtime")]
mod eventually;
#[path = "interop/rmcp_modes.rs"]
mod rmcp_modes;
#[path = "interop/rmcp_server.rs"]
mod rmcp_server;
#[path = "interop/rmcp_wrapped.rs"]
mod rmcp_wrapped;

macro_rules! in_front_of_both {
    ($($name:ident)*) => {
        mod legacy { $(#[tokio::test] async fn $name() { super::$name(super::Upstream::Legacy).await; })* }
        mod modern { $(#[tokio::test] async fn $name() { super::$name(super::Upstream::Modern).await; })* }
    };
}

#[path = "interop/rmcp_long.rs"]
mod rmcp_long;

in_front_of_both! {
    a_quick_call_is_answered_at_once
    a_slow_call_becomes_a_task_and_completes
    a_question_is_answered_inside_the_task
    a_tools_own_error_completes_the_task
    a_protocol_error_fails_the_task
    cancel_reaches_the_upstream
    an_unknown_task_is_invalid_params
}

async fn a_quick_call_is_answered_at_once(upstream: Upstream) {
    let house = House::open(upstream).await;
    let CallToolResponse::Complete(result) = house.call("greet", json!({"name": "Ada"})).await
    else {
        panic!("greet is never a task");
    };
    assert_eq!(
        serde_json::to_value(result).unwrap()["content"][0]["text"],
        "Hello, Ada!"
    );
}

async fn a_slow_call_becomes_a_task_and_completes(upstream: Upstream) {
    let house = House::open(upstream).await;
    let task = house
        .task("slow_compute", json!({"seconds": 1.0, "label": "rmcp"}))
        .await;
    assert_eq!(task.task.status, TaskStatus::Working);
    assert!(task.task.ttl_ms.is_some(), "ttlMs is always said");
    let done = house.terminal(&task).await;
    assert_eq!(text(&done), "slow_compute(rmcp) done after 1s");
    assert_eq!(done.task.task_id, task.task.task_id);
    assert_eq!(done.task.created_at, task.task.created_at);
}

async fn a_question_is_answered_inside_the_task(upstream: Upstream) {
    let house = House::open(upstream).await;
    let task = house
        .task("confirm_delete", json!({"filename": "a.txt"}))
        .await;
    let asked = house
        .until(&task, |task| task.status() == TaskStatus::InputRequired)
        .await;
    let TaskPayload::InputRequired { input_requests } = asked.payload else {
        panic!("input_required comes with its questions");
    };
    assert_eq!(input_requests.len(), 1);
    let (key, question) = input_requests.into_iter().next().unwrap();
    let question = serde_json::to_value(question).unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Delete a.txt?");

    let answer = json!({"action": "accept", "content": {"confirm": true}});
    house
        .client
        .update_task(UpdateTaskParams::new(
            &task.task.task_id,
            [(key.clone(), answer)].into(),
        ))
        .await
        .unwrap();
    // The ack is the promise that the answer was taken: the next look no longer asks.
    if let TaskPayload::InputRequired { input_requests } = house.look(&task).await.payload {
        assert!(!input_requests.contains_key(&key), "asked twice");
    }
    let done = house.terminal(&task).await;
    assert!(text(&done).starts_with("confirm_delete(a.txt): action=accept confirmed=True"));
}

async fn a_tools_own_error_completes_the_task(upstream: Upstream) {
    let house = House::open(upstream).await;
    let task = house.task("failing_job", json!({})).await;
    let done = house.terminal(&task).await;
    assert!(text(&done).starts_with("Error executing tool failing_job"));
    assert_eq!(result(&done)["isError"], true);
}

async fn a_protocol_error_fails_the_task(upstream: Upstream) {
    let house = House::open(upstream).await;
    let task = house.task("protocol_error_job", json!({})).await;
    let TaskPayload::Failed { error } = house.terminal(&task).await.payload else {
        panic!("a JSON-RPC error fails the task");
    };
    assert_eq!(error["code"], -32603);
    assert_eq!(
        error["message"],
        "protocol_error_job: intentional protocol-level failure"
    );
    assert_eq!(error["data"], json!({"why": "fixture"}));
}

async fn cancel_reaches_the_upstream(upstream: Upstream) {
    let house = House::open(upstream).await;
    let task = house.task("slow_compute", json!({"seconds": 60.0})).await;
    let what = "the upstream runs it";
    house.until_counted(END, what, "started", 1).await;
    let cancel = CancelTaskParams::new(&task.task.task_id);
    house.client.cancel_task(cancel).await.unwrap();
    assert_eq!(house.look(&task).await.status(), TaskStatus::Cancelled);
    let soon = Duration::from_secs(2);
    let what = "the upstream is told";
    house.until_counted(soon, what, "cancelled", 1).await;
}

async fn an_unknown_task_is_invalid_params(upstream: Upstream) {
    let house = House::open(upstream).await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    let error = house
        .client
        .get_task(GetTaskParams::new(unknown))
        .await
        .unwrap_err();
    let ServiceError::McpError(error) = error else {
        panic!("a JSON-RPC error, not {error}");
    };
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
}

// --- the harness ---

/// Python needs seconds to start where both cores are busy.
const START: Duration = Duration::from_secs(30);
/// The slowest fixture works for a second.
const END: Duration = Duration::from_secs(20);

type Client = RunningService<RoleClient, ClientConfig>;

#[derive(Clone, Copy)]
enum Upstream {
    Legacy,
    Modern,
}

/// An upstream, raincheck in front of it and a client connected to it; dropped, all of them end.
struct House {
    client: Client,
    upstream: SocketAddr,
    listen: SocketAddr,
    store: PathBuf,
    /// Of those that are processes: raincheck and the server behind it.
    processes: Vec<Child>,
}

impl House {
    async fn open(kind: Upstream) -> Self {
        let upstream = free_address();
        let server = serve(&mut python(kind, upstream), upstream).await;
        let mut house = Self::behind(upstream, "tests/conformance/raincheck.toml", &[]).await;
        house.processes.push(server);
        house
    }

    /// In front of a server that is there.
    async fn behind(upstream: SocketAddr, config: &str, environment: &[(&str, &str)]) -> Self {
        let listen = free_address();
        let store = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "interop-{}-{}.redb",
            std::process::id(),
            listen.port()
        ));
        let mut raincheck = raincheck(upstream, listen, &store, config);
        raincheck.envs(environment.iter().copied());
        let processes = vec![serve(&mut raincheck, listen).await];
        let capabilities = ClientCapabilities::builder()
            .enable_tasks()
            .enable_elicitation()
            .build();
        Self {
            client: connect(listen, capabilities).await,
            upstream,
            listen,
            store,
            processes,
        }
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> CallToolResponse {
        Self::ask(&self.client, tool, arguments).await
    }

    async fn ask(client: &Client, tool: &'static str, arguments: Value) -> CallToolResponse {
        let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        timeout(END, client.call_tool_once(params))
            .await
            .expect("an answer in time")
            .unwrap()
    }

    async fn task(&self, tool: &'static str, arguments: Value) -> CreateTaskResult {
        let answer = self.call(tool, arguments).await;
        let CallToolResponse::Task(task) = answer else {
            panic!("{tool} becomes a task, not {answer:?}");
        };
        task
    }

    async fn look(&self, task: &CreateTaskResult) -> DetailedTask {
        self.client
            .get_task(GetTaskParams::new(&task.task.task_id))
            .await
            .unwrap()
            .task
    }

    async fn until(
        &self,
        task: &CreateTaskResult,
        wanted: impl Fn(&DetailedTask) -> bool,
    ) -> DetailedTask {
        let poll = async || {
            let seen = self.look(task).await;
            if wanted(&seen) {
                return Ok(seen);
            }
            Err(format!("{seen:?}"))
        };
        eventually(END, "the task gets there in time", poll).await
    }

    async fn terminal(&self, task: &CreateTaskResult) -> DetailedTask {
        self.until(task, |task| task.status().is_terminal()).await
    }

    /// Until the upstream counts so many calls of the slow tool.
    async fn until_counted(&self, patience: Duration, what: &str, count: &str, wanted: u64) {
        eventually(patience, what, async || {
            let counts = self.stats().await["slow_compute"].take();
            let is_so = counts[count] == wanted;
            is_so.then_some(()).ok_or(counts)
        })
        .await;
    }

    /// What the upstream really ran: `{tool: {started, finished, cancelled, failed}}`.
    async fn stats(&self) -> Value {
        let mut stream = TcpStream::connect(self.upstream).await.unwrap();
        stream
            .write_all(b"GET /_stats HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.store);
    }
}

fn result(task: &DetailedTask) -> &JsonObject {
    let TaskPayload::Completed { result } = &task.payload else {
        panic!("completed, not {:?}", task.payload);
    };
    result
}

fn text(task: &DetailedTask) -> &str {
    result(task)["content"][0]["text"]
        .as_str()
        .expect("a text block")
}

async fn connect(listen: SocketAddr, capabilities: ClientCapabilities) -> Client {
    let uri = format!("http://{listen}/mcp");
    let transport = StreamableHttpClientTransport::from_config(
        StreamableHttpClientTransportConfig::with_uri(uri),
    );
    let connected = ClientConfig::new(capabilities, Implementation::from_build_env())
        .serve_with_lifecycle(
            transport,
            ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        );
    timeout(START, connected)
        .await
        .expect("server/discover is answered")
        .unwrap()
}

fn python(kind: Upstream, listen: SocketAddr) -> Command {
    let (environment, script) = match kind {
        Upstream::Legacy => ("python-legacy", "upstream_legacy.py"),
        Upstream::Modern => ("python-modern", "upstream_modern.py"),
    };
    let python = cache().join(environment).join("bin/python");
    assert!(
        python.exists(),
        "{} is missing: run tests/setup.sh",
        python.display()
    );
    let mut command = Command::new(python);
    command
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/conformance")
                .join(script),
        )
        .arg("--port")
        .arg(listen.port().to_string());
    command
}

fn raincheck(upstream: SocketAddr, listen: SocketAddr, store: &Path, config: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command
        .arg("run")
        .arg("--config")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(config))
        .args(["--upstream", &format!("http://{upstream}/mcp")])
        .args(["--store", &format!("redb:{}", store.display())])
        .args(["--listen", &listen.to_string()]);
    command
}

/// Start a server and wait until it accepts connections.
async fn serve(command: &mut Command, address: SocketAddr) -> Child {
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    eventually(START, "the server listens in time", || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("{:?} ended with {status}", command.as_std());
        }
        TcpStream::connect(address)
    })
    .await;
    child
}

/// A port for a server that binds it later. No other process takes it meanwhile: it is below the ports that the system
/// gives out by itself, and each process of tests has its own.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + number % 20_000).unwrap();
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener.local_addr().unwrap();
        }
    }
}

fn cache() -> PathBuf {
    std::env::var_os("RAINCHECK_TEST_CACHE").map_or_else(
        || {
            std::env::home_dir()
                .expect("a home")
                .join(".cache/raincheck-tests")
        },
        PathBuf::from,
    )
}
